"""The `icebridge` command: one module per command; each loads settings and calls what does the work."""
