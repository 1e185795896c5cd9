"""The sink, through a real broker."""
