"""offsets -> micro-batches: their size, transactions, retries and dead letters; on the driver."""
