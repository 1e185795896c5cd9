"""icebridge's own state in Iceberg tables: offsets, deleted keys, schema history."""
