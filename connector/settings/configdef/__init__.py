"""Property files -> checked values: options declared once, every fault of a file at once."""
