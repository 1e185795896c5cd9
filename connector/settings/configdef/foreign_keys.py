"""keys of others -> notes: what a user's file holds for Debezium, Kafka Connect and other sinks, and is not ours.

Such a file has to run as it is, so these keys are named in a note and not refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from connector.settings.iceberg import iceberg_kafka_connect


@attrs.frozen
class ForeignKeys:
    """Keys that mean something to somebody else, by whole name or by how they begin."""

    note: str
    names: frozenset[str]
    prefixes: tuple[str, ...]

    def owns(self, key: str) -> bool:
        """Whether the key is one of these."""
        return key in self.names or key.startswith(self.prefixes)


DEBEZIUM = ForeignKeys(
    "these keys configure Debezium itself and have no effect here",
    frozenset({"debezium.transforms", "debezium.predicates", "transforms", "predicates"}),
    (
        "debezium.source.",
        "debezium.format.",
        "debezium.transforms.",
        "debezium.predicates.",
        "debezium.engine.",
        "debezium.api.",
        "transforms.",
        "predicates.",
        "quarkus.",
        "database.",
        "schema.history.",
        "offset.",
        "%",
    ),
)
CONNECT = ForeignKeys(
    "these keys configure a Kafka Connect worker and have no effect here",
    frozenset(
        {
            "connector.class",
            "tasks.max",
            "tasks.max.enforce",
            "header.converter",
            "config.action.reload",
            "config.providers",
            "plugin.path",
            "errors.log.enable",
            "errors.log.include.messages",
            "errors.deadletterqueue.context.headers.enable",
        }
    ),
    ("config.providers.",),
)
OTHER_SINK = ForeignKeys(
    "these keys of Debezium Server's iceberg sink have no effect here",
    frozenset(
        {
            "debezium.sink.iceberg.upsert-use-dv",
            "debezium.sink.iceberg.openlineage-enabled",
            "debezium.sink.batch.concurrent-uploads",
            "debezium.sink.batch.concurrent-uploads.timeout-minutes",
        }
    ),
    ("debezium.sink.iceberg.openlineage.",),
)
CONNECT_SINK = ForeignKeys(
    "these keys of Iceberg Kafka Connect steer its coordinator and have no effect here",
    frozenset(),
    iceberg_kafka_connect.NO_EFFECT,
)
AIVEN_SINK = ForeignKeys(
    "these keys of Aiven's OpenSearch sink steer its buffers and have no effect here",
    frozenset({"type.name", "max.buffered.records", "linger.ms", "flush.timeout.ms", "connection.timeout.ms"}),
    ("type.name.",),
)
AIVEN_TEMPLATES = ForeignKeys(
    "an index template that fits a data stream's name is used whatever its own name, so this key has no effect here",
    frozenset({"data.streams.existing.index.template.name"}),
    (),
)
REFUSED = ForeignKeys("", frozenset(iceberg_kafka_connect.REFUSED), ())
FOREIGN_KEYS = (DEBEZIUM, CONNECT, OTHER_SINK, CONNECT_SINK, AIVEN_SINK, AIVEN_TEMPLATES)


def note_foreign_keys(keys: Iterable[str]) -> Iterator[str]:
    """One note for each owner that has keys among these, naming them all."""
    given = sorted(keys)
    for foreign in FOREIGN_KEYS:
        owned = [key for key in given if foreign.owns(key)]
        if owned:
            yield f"{foreign.note}: {', '.join(owned)}"
