"""`key.converter`, `value.converter` and their registry -> how messages are read and written."""
