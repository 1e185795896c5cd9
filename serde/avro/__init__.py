"""Avro bytes -> blocks: Confluent's frame, writer schemas by id, a column at a time."""
