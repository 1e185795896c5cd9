"""schema texts -> definitions -> the tree by which messages are read, and their Connect schema."""
