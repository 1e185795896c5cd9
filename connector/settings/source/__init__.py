"""A source's properties -> `SourceSettings`."""
