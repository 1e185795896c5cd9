"""Settings -> connectors of the server: the port, sinks, sources, and those that cannot be read."""
