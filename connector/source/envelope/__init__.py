"""changed rows -> Debezium envelopes in the configured wire format."""
