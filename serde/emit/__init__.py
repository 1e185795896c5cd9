"""Row descriptions -> what goes on the wire: Connect schemas, envelopes and side topics, exactly as Debezium has them."""
