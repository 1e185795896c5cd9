"""Arrow, Spark and JSON schemas <-> Iceberg's types, and values converted between them."""
