"""name and topics -> the configuration of Debezium's JDBC sink connector into our PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.interop.postgres import USER, Postgres

CLASS = "io.debezium.connector.jdbc.JdbcSinkConnector"
UNWRAP: Mapping[str, str] = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    # The sink deletes on a record without value; the tombstone that follows the delete is dropped as its repetition.
    "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
}
"""What puts Debezium's transform in front of the sink, which then gets rows instead of envelopes."""


def table_of(name: str, topic: str) -> str:
    """The table that a connector of this name makes for a topic. Both in lower-case letters, digits, `.` and `_`."""
    return f"{name}_{topic}".replace(".", "_")


def jdbc_sink(
    name: str, postgres: Postgres, topics: Iterable[str], extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Upserts and deletes by the record's key into tables that the sink makes and widens; `extra` stands on top."""
    return {
        "connector.class": CLASS,
        "tasks.max": "1",
        "topics": ",".join(topics),
        "connection.url": postgres.jdbc_url,
        "connection.username": USER,
        "connection.password": "any",
        "connection.pool.min_size": "1",
        "connection.pool.max_size": "2",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": f"{name}_${{topic}}",
        "use.time.zone": "UTC",
        # Connect's default reads the JSON of __debezium.newkey as a map, which the sink refuses when the columns of the
        # key are of different types.
        "header.converter": "org.apache.kafka.connect.storage.StringConverter",
        **(extra or {}),
    }
