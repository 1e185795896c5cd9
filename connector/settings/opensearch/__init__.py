"""`opensearch.*` options -> the node, its indexes and documents."""
