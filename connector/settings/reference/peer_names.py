"""our key -> whose it is: the column "Same as" of the generated reference.

Debezium Server Iceberg, Iceberg Kafka Connect (and its Tabular ancestor), the Debezium JDBC sink, Aiven's OpenSearch
sink, Kafka Connect.
"""

from __future__ import annotations

from connector.settings.iceberg import iceberg_kafka_connect
from connector.settings.opensearch import connection, documents

_OWN_KEYS = ("debezium.sink.batch.interval-ms", "debezium.sink.batch.max-events")
_OWN_FAMILIES = (
    "iceberg.backpressure.",
    "iceberg.maintenance.",
    "iceberg.row-lookup",
    "iceberg.tables.topic-to-table-mapping",
)
_JDBC = ("primary.key.", "collection.name.format", "schema.evolution", "truncate.enabled")
_CONNECT = (
    "topics",
    "key.converter",
    "value.converter",
    "consumer.override.",
    "producer.override.",
    "admin.override.",
    "errors.tolerance",
    "errors.retry.",
    "errors.deadletterqueue.topic.",
)
_OWN_OPENSEARCH_KEYS = (
    "connection.ssl.",
    "connection.compression",
    "bulk.size.bytes",
    "aws.profile",
    "aws.session.token",
    "index.gc_deletes",
    "iceberg.",
)
_ROUTER = {
    "topic.format": "TimestampRouter",
    "timestamp.format": "TimestampRouter",
    "message.timestamp.keys": "MessageTimestampRouter",
}
"""Options of the transforms of Kafka Connect and Confluent."""

_AIVEN = frozenset(
    option.name for option in documents.OPTIONS if not option.name.startswith((*_OWN_OPENSEARCH_KEYS, *_ROUTER))
)
_AIVENS_OWN = {option.name: option.aliases[0] for option in connection.CONNECTION_OPTIONS if option.aliases}
"""Our names -> those of Aiven's sink."""
_TABULAR = ("iceberg.tables.cdc-field", "iceberg.tables.upsert-mode-enabled")
_CATALOG = ("warehouse", "type", "catalog-impl", "uri", "io-impl")


def same_as(key: str) -> str:
    """Tell which peers have a key, under its name or another; empty for our own.

    `key` is an option's name, or how a family begins.
    """
    theirs = iceberg_kafka_connect.SAME_AS.get(key)
    if key.startswith("debezium.sink.iceberg.") and key.removeprefix("debezium.sink.iceberg.") in _CATALOG:
        theirs = "iceberg.catalog." + key.removeprefix("debezium.sink.iceberg.")
    if key == "debezium.sink.iceberg.partition-by.":
        theirs = "iceberg.table.<table>.partition-by"
    peers = []
    if key.startswith("debezium.") and key not in _OWN_KEYS:
        peers.append("Debezium Server Iceberg")
    if theirs is not None:
        older = " (Tabular)" if theirs in _TABULAR else ""
        peers.append(f"Iceberg Kafka Connect: `{theirs}`{older}")
    elif key.startswith("iceberg.") and not key.startswith(_OWN_FAMILIES):
        peers.append("Iceberg Kafka Connect")
    if key.startswith(_JDBC):
        peers.append("Debezium JDBC sink")
    if key in _ROUTER:
        peers.append(f"Kafka Connect's {_ROUTER[key]}")
    if key in _AIVENS_OWN:
        peers.append(f"Aiven's OpenSearch sink: `{_AIVENS_OWN[key]}`")
    elif key in _AIVEN:
        peers.append("Aiven's OpenSearch sink")
    if key.startswith(_CONNECT):
        peers.append("Kafka Connect")
    return ", ".join(peers)
