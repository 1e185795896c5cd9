"""properties -> what a table looks like that the sink makes: columns, partitions, sort order, format."""
