"""Row descriptions -> the wire: Connect schemas, envelopes and side topics, as Debezium has them."""
