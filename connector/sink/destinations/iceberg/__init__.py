"""rows -> files -> one commit per table with the offsets in it."""
