"""`icebridge demo`: recorded Debezium events -> a broker of its own -> Iceberg tables, shown.

Nothing is imported here: the servers are used without the demo too, whose Spark takes seconds to import.
"""
