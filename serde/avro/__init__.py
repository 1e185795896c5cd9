"""Avro datums and object files <-> Arrow columns."""
