"""Options of the OpenSearch sink -> the node, its indexes and documents."""
