"""upserts -> delete files, rewritten files or history rows; one module per write mode."""
