"""The reference's column "Same as": whose a key is."""

from __future__ import annotations

import pytest

from connector.settings.iceberg import iceberg_kafka_connect
from connector.settings.reference.peer_names import same_as
from connector.settings.sink import other_names as sink_names
from connector.settings.sink.options import collect_options
from connector.settings.source import other_names as source_names
from connector.settings.source.settings import ALLOWED_KEYS


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
        ("iceberg.maintenance.enabled", ""),
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


def test_what_others_mean_by_a_name_is_declared() -> None:
    """An error names no key that there is not, and is not said of one that there is."""
    for meant, allowed in ((sink_names.MEANT, collect_options().allowed), (source_names.MEANT, ALLOWED_KEYS)):
        assert not {key for key in meant if allowed.knows(key)}
        assert not {text for text in meant.values() if not allowed.knows(text.partition("=")[0])}
