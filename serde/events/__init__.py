"""decoded messages -> Debezium events: operation, images, source position, unavailable values."""
