"""rows -> documents with versions, in indexes, aliases and data streams."""
