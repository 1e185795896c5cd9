"""Connect schemas and logical types <-> Arrow types."""
