"""A sink's properties -> `SinkSettings`."""
