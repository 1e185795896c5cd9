"""Iceberg: tables, types, files, commits and offsets. Arrow batches -> files -> snapshots."""
