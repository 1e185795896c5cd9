"""The tests' own clients of Kafka, Iceberg and OpenSearch, which share no code with the connectors."""
