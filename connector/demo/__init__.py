"""`icebridge demo`: recorded Debezium events -> a broker of its own -> Iceberg tables, shown."""
