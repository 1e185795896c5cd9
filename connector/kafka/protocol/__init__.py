"""Kafka's protocol as bytes: requests -> bytes, bytes -> responses, in the versions that both sides know (pure)."""
