"""Source: Iceberg snapshots -> row changes -> envelopes -> Kafka."""
