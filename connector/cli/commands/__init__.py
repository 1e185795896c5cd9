"""Command lines -> calls of what does the work: arguments, options and help of each command, and no heavy imports."""
