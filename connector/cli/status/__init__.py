"""`icebridge status`: where a sink or a source stands; it may be running."""
