"""JSON with or without schema -> Arrow columns."""
