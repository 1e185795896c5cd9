"""A thousand kills of the real thing: PostgreSQL, Debezium, Kafka, sinks, source and OpenSearch, compared when quiet.

load -> PostgreSQL -> Debezium -> Kafka -> sinks, a source and its replica, an index
faults -> all of them;  quiet points -> differences (none), counts
"""
