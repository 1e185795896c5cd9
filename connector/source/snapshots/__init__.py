"""A table's history and the stored offset -> the next step."""
