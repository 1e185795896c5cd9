"""Events that are no plain envelope of a row -> envelopes, rows of their own tables, or what they say about others."""
