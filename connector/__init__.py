"""icebridge: pipelines and adapters of a Debezium-style bridge between Iceberg and Kafka, on Spark."""
