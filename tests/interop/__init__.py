"""Interop: what goes through a real Kafka Connect worker with Debezium's own transform and sink into PostgreSQL."""
