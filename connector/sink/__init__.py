"""Kafka records -> Iceberg tables or OpenSearch indexes, exactly once."""
