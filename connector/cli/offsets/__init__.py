"""`icebridge offsets`: stored offsets of a sink or a source, shown or reset."""
