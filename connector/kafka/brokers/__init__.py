"""Brokers: connections that are negotiated and logged in, and who leads which topic-partition. On executors."""
