"""Arrow types -> Connect and Avro schemas and envelopes, for what the source writes."""
