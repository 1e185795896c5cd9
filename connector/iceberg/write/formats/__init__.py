"""Arrow batches -> the bytes of one Parquet or Avro file, and what its manifest says of it."""
