"""Iceberg snapshots -> Debezium events in Kafka, or documents in OpenSearch."""
