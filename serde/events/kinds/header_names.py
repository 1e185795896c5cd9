"""A Debezium event -> the names of the record headers that say what its value does not."""

from __future__ import annotations

CONNECTOR_HEADER = "__debezium.context.connectorName"
"""Which connector made the event; Debezium 3.5 and newer write it."""

OLD_KEY_HEADER = "__debezium.oldkey"
"""On the create of a change of key: the key its row had before."""

NEW_KEY_HEADER = "__debezium.newkey"
"""On the delete of a change of key, and on its tombstone: the key its row has now."""
