"""Requests as Kafka Connect takes them -> what is done to connectors -> Connect's JSON."""
