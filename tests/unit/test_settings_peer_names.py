"""The reference's column "Same as": whose a key is."""

from __future__ import annotations

import pytest

from connector.settings.iceberg import iceberg_kafka_connect
from connector.settings.reference.peer_names import same_as
from connector.settings.sink.options import collect_options


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("debezium.sink.iceberg.upsert-keep-deletes", "Debezium Server Iceberg"),
        (
            "debezium.sink.iceberg.allow-field-addition",
            "Debezium Server Iceberg, Iceberg Kafka Connect: `iceberg.tables.evolve-schema-enabled`",
        ),
        ("debezium.sink.iceberg.uri", "Debezium Server Iceberg, Iceberg Kafka Connect: `iceberg.catalog.uri`"),
        ("iceberg.tables.route-field", "Iceberg Kafka Connect"),
        ("primary.key.fields", "Debezium JDBC sink"),
        ("topics", "Kafka Connect"),
        ("aws.region", "Aiven's OpenSearch sink"),
        ("aws.profile", ""),
        ("aws.role.arn", "Aiven's OpenSearch sink: `aws.sts.role.arn`"),
        ("debezium.sink.batch.max-events", ""),
    ],
)
def test_whose_a_key_is(key: str, expected: str) -> None:
    """Peers that have the key are named, with their own name for it where that differs."""
    assert same_as(key) == expected


def test_what_the_names_of_peers_become_is_declared() -> None:
    """Every key of Iceberg Kafka Connect that is taken as one of ours becomes a declared one."""
    assert set(iceberg_kafka_connect.SAME_AS) <= set(collect_options().names)
