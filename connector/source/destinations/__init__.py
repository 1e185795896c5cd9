"""changes -> where they are published; one module per destination."""
