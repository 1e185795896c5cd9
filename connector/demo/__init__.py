"""`icebridge demo`: recorded Debezium events -> a broker of its own -> Iceberg tables, shown."""

from connector.demo.demo import play

__all__ = ["play"]
