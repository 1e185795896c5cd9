"""decoded messages -> changes -> rows, schema changes and faults of their tables."""
