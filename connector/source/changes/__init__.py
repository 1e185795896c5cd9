"""two snapshots -> the rows that changed between them."""
