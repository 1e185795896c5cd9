"""documents -> bulk requests, and what became of each document."""
