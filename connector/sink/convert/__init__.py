"""records -> decoded changes -> schema changes and rows of their tables."""
