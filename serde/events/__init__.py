"""decoded messages -> changes: where an event stands, what it is, the images of its row, and what these leave out."""
