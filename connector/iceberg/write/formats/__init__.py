"""Arrow batches -> the bytes of one Parquet, Avro or ORC file, and what its manifest says of it."""
