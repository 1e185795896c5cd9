"""`iceberg.*` options -> catalog, tables, keys, partitions and write modes."""
