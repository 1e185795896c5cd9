"""WIRE: bytes <-> change events; knows nothing of Spark, Iceberg or the connector."""
