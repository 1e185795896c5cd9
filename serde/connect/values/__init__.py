"""Wire values -> logical values, a column at a time: one module per kind of value."""
