"""Connectors of a process -> HTTP: health, metrics, Kafka Connect's REST interface, and a page."""
