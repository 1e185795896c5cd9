"""Iceberg snapshots -> Debezium envelopes in Kafka."""
