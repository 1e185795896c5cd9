"""properties -> EventOutputSettings: how events look on the wire, and how their topics are named and made.

Names and defaults: Debezium's connectors, Kafka Connect's converters and topic creation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

import attrs

from connector.settings.configdef import value_types
from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    LIST,
    TOPIC_NAME,
    InvalidValue,
    ValueType,
    one_of,
    whole_number,
)
from connector.settings.converters import serializers
from connector.settings.converters.serializers import SerializerSettings
from serde.emit.name_adjustment import Adjustment
from serde.emit.type_mapping import BinaryMode, DecimalMode, HandlingModes, TimeMode


def _parse_operations(text: str) -> tuple[str, ...]:
    operations = value_types.split_list(text.lower())
    if not set(operations) <= {"c", "u", "d", "t", "none"} or ("none" in operations and len(operations) > 1):
        raise InvalidValue("{} is no list of operations", "write c, u, d, t, comma separated, or none")
    return () if operations == ("none",) else operations


TOPIC_PREFIX = Option(
    name="topic.prefix",
    kind=TOPIC_NAME,
    default="",
    importance="high",
    doc="First part of every topic name, and the source's name in events: do not change it. Required.",
    aliases=("database.server.name",),
)
TOPIC_DELIMITER = Option(
    name="topic.delimiter",
    kind=value_types.TOPIC_DELIMITER,
    default=".",
    importance="low",
    doc="Delimiter between the parts of a topic name: <topic.prefix>.<namespace>.<table>.",
)
TOPIC_TRANSACTION = Option(
    name="topic.transaction",
    kind=TOPIC_NAME,
    default="transaction",
    importance="low",
    doc="Last part of the transaction topic's name.",
)
TOPIC_HEARTBEAT = Option(
    name="topic.heartbeat.prefix",
    kind=TOPIC_NAME,
    default="__debezium-heartbeat",
    importance="low",
    doc="First part of the heartbeat topic's name; the rest is topic.prefix.",
)
HEARTBEAT_TOPIC = Option(
    name="topic.heartbeat.name",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="The heartbeat topic's whole name; wins over topic.heartbeat.prefix.",
    shown="<topic.heartbeat.prefix>.<topic.prefix>",
)


DECIMALS = Option(
    name="decimal.handling.mode",
    kind=one_of("precise", "double", "string", any_case=True),
    default="precise",
    importance="medium",
    doc="How decimals are represented: precise (Connect's Decimal), double, or string.",
)
TIMES = Option(
    name="time.precision.mode",
    kind=one_of(*get_args(TimeMode), any_case=True),
    default="adaptive",
    importance="medium",
    doc="How dates and times are represented: adaptive keeps the column's precision, connect uses milliseconds, "
    "structured sends their parts (Debezium 3.7).",
)
BINARIES = Option(
    name="binary.handling.mode",
    kind=one_of("bytes", "base64", "base64-url-safe", "hex", any_case=True),
    default="bytes",
    importance="low",
    doc="How binary columns are represented: bytes, or encoded as text.",
)
SCHEMA_NAMES = Option(
    name="schema.name.adjustment.mode",
    kind=one_of("none", "avro", "avro_unicode", any_case=True),
    default="none",
    importance="low",
    doc="Names of schemas: none leaves them (only what Avro refuses becomes _ in Avro), avro puts _ for each character "
    "that Avro does not allow, avro_unicode puts _uXXXX, for _ too.",
)
FIELD_NAMES = Option(
    name="field.name.adjustment.mode",
    kind=one_of("none", "avro", "avro_unicode", any_case=True),
    default="none",
    importance="low",
    doc="The same for column names in events.",
)
TOMBSTONES = Option(
    name="tombstones.on.delete",
    kind=BOOLEAN,
    default=True,
    importance="medium",
    doc="Send a tombstone after every delete event, so that log compaction can remove the key.",
)
SKIPPED_OPERATIONS = Option(
    name="skipped.operations",
    kind=ValueType("list", _parse_operations),
    default=("t",),
    importance="low",
    doc="Operations to skip: c, u, d, t, or none.",
)
SKIP_UNCHANGED = Option(
    name="skip.messages.without.change",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Skip updates that change none of the columns that are published, nor the key.",
)
TRANSACTIONS = Option(
    name="provide.transaction.metadata",
    kind=BOOLEAN,
    default=False,
    importance="medium",
    doc="Send BEGIN and END of every snapshot to the transaction topic and number its events (sorts each snapshot).",
)
HEARTBEAT = Option(
    name="heartbeat.interval.ms",
    kind=whole_number(0, 2**31 - 1),
    default=0,
    importance="low",
    doc="Milliseconds between heartbeats; 0: none.",
)
SCHEMA_CHANGES = Option(
    name="include.schema.changes",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Send a schema change event to <topic.prefix> before a table's first event and before each new schema.",
)
PARTITIONS = Option(
    name="topic.creation.default.partitions",
    kind=whole_number(1, 2**31 - 1),
    default=3,
    importance="medium",
    doc="Partitions of new topics; existing topics are not changed.",
)
REPLICATION = Option(
    name="topic.creation.default.replication.factor",
    kind=whole_number(-1, 32767),
    default=-1,
    importance="medium",
    doc="Replication factor of new topics; -1 is the broker's default.",
)
CLEANUP = Option(
    name="topic.creation.default.cleanup.policy",
    kind=LIST,
    default=("delete",),
    importance="medium",
    doc="delete, compact, or both; topics of tables without a key get delete, as compaction refuses null keys.",
)
TOPIC_CONFIG = Prefix(
    name="topic.creation.default.",
    target="topics that are made",
    importance="low",
    doc="Any other setting of new topics, such as retention.ms.",
)
OPTIONS: tuple[Option[object], ...] = (
    TOPIC_PREFIX,
    TOPIC_DELIMITER,
    TOPIC_TRANSACTION,
    TOPIC_HEARTBEAT,
    HEARTBEAT_TOPIC,
    *serializers.KEY_SERIALIZER.all,
    *serializers.VALUE_SERIALIZER.all,
    DECIMALS,
    TIMES,
    BINARIES,
    SCHEMA_NAMES,
    FIELD_NAMES,
    TOMBSTONES,
    SKIPPED_OPERATIONS,
    SKIP_UNCHANGED,
    TRANSACTIONS,
    HEARTBEAT,
    SCHEMA_CHANGES,
    PARTITIONS,
    REPLICATION,
    CLEANUP,
)
PREFIXES = (TOPIC_CONFIG,)
ACCEPTED_FORMATS = tuple(
    Option(name=f"debezium.format.{side}", kind=one_of("json"), default="json", importance="low", doc="")
    for side in ("key", "value")
)


@attrs.frozen
class TopicCreation:
    """How topics are made; a replication factor of -1 is the broker's default."""

    partitions: int
    replication: int
    cleanup: tuple[str, ...]
    config: Mapping[str, str]

    def settings(self, *, keyed: bool) -> dict[str, str]:
        """The settings of a new topic; without keys it is never compacted."""
        return {**self.config, "cleanup.policy": ",".join(self.cleanup) if keyed else "delete"}


@attrs.frozen
class EventOutputSettings:
    """What events and topics look like; `skipped` holds operations of which no event is sent.

    `skips_unchanged`: nor is one of an update that changes nothing of what is published.
    """

    prefix: str
    delimiter: str
    transaction_part: str
    heartbeat_topic: str
    key: SerializerSettings
    value: SerializerSettings
    modes: HandlingModes
    tombstones: bool
    skipped: frozenset[str]
    transactions: bool
    heartbeat_ms: int
    schema_changes: bool
    creation: TopicCreation
    skips_unchanged: bool = False

    def topic(self, table: str) -> str:
        """The topic of a table, by its name with namespace; what Kafka does not allow becomes `_`."""
        parts = (self.prefix, *table.split("."))
        return value_types.to_topic_name(self.delimiter.join(parts))

    @property
    def transaction_topic(self) -> str:
        """Where BEGIN and END go."""
        return f"{self.prefix}{self.delimiter}{self.transaction_part}"


def build(reader: ConfigReader) -> EventOutputSettings:
    """Read the part about events and topics; faults go to the reader."""
    if reader.entry(TOPIC_PREFIX) is None:
        reader.add_missing(TOPIC_PREFIX.name, "is missing", "name the source; its topics begin with it")
    return EventOutputSettings(
        prefix=reader.get(TOPIC_PREFIX),
        delimiter=reader.get(TOPIC_DELIMITER),
        transaction_part=reader.get(TOPIC_TRANSACTION),
        heartbeat_topic=reader.get(HEARTBEAT_TOPIC) or f"{reader.get(TOPIC_HEARTBEAT)}.{reader.get(TOPIC_PREFIX)}",
        key=serializers.build(reader, serializers.KEY_SERIALIZER),
        value=serializers.build(reader, serializers.VALUE_SERIALIZER),
        modes=HandlingModes(
            decimals=cast("DecimalMode", reader.get(DECIMALS)),
            times=cast("TimeMode", reader.get(TIMES)),
            binaries=cast("BinaryMode", reader.get(BINARIES)),
            names=cast("Adjustment", reader.get(SCHEMA_NAMES)),
            fields=cast("Adjustment", reader.get(FIELD_NAMES)),
        ),
        tombstones=reader.get(TOMBSTONES),
        skipped=frozenset(reader.get(SKIPPED_OPERATIONS)),
        transactions=reader.get(TRANSACTIONS),
        heartbeat_ms=reader.get(HEARTBEAT),
        schema_changes=reader.get(SCHEMA_CHANGES),
        creation=_read_topic_creation(reader),
        skips_unchanged=reader.get(SKIP_UNCHANGED),
    )


def _read_topic_creation(reader: ConfigReader) -> TopicCreation:
    replication, entry = reader.get(REPLICATION), reader.entry(REPLICATION)
    if replication == 0 and entry:
        reader.add_fault(entry, "'0' makes no topic", "write -1 for the broker's default or a number from 1")
    cleanup, entry = reader.get(CLEANUP), reader.entry(CLEANUP)
    if entry and not set(cleanup) <= {"delete", "compact"}:
        reader.add_fault(entry, "holds an unknown policy", "write delete, compact, or both")
    return TopicCreation(reader.get(PARTITIONS), replication, cleanup, reader.under(TOPIC_CONFIG))
