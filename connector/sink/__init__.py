"""The sink: Kafka -> decode -> fold -> Iceberg files -> commit with offsets. The batch is the unit."""
