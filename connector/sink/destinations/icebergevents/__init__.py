"""events as text -> one Iceberg table: the destination of Debezium Server Iceberg's `icebergevents`."""
