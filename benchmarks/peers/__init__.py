"""topics -> figures of others: Flink and Iceberg's Kafka Connect sink beside ours, in turns (`make bench-peers`)."""
