"""A simulated world: the sink's own batches and commits over a source, Kafka and a catalog in memory."""
