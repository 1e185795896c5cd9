"""a file of the Iceberg Kafka Connect sink -> the same keys by the names and with the defaults that they have here.

Sources of the names: Iceberg's kafka-connect.md, and the older Tabular sink (`cdc-field`, `upsert-mode-enabled`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.unknown_keys import ForeignKeys
from connector.settings.connector_class import ICEBERG_SINK_CLASS, is_named
from connector.settings.iceberg.maintenance.policies import TABLE_INFIX

_PREFIX = "debezium.sink.iceberg."
_RENAMED = {
    "iceberg.catalog": f"{_PREFIX}catalog-name",
    "iceberg.tables.default-partition-by": f"{_PREFIX}partition-by",
    "iceberg.tables.evolve-schema-enabled": f"{_PREFIX}allow-field-addition",
    "iceberg.tables.upsert-mode-enabled": f"{_PREFIX}upsert",
    "iceberg.tables.cdc-field": f"{_PREFIX}upsert-op-field",
    "iceberg.control.commit.interval-ms": "debezium.sink.batch.interval-ms",
    "iceberg.kafka.bootstrap.servers": "bootstrap.servers",
}
SAME_AS = {ours: theirs for theirs, ours in _RENAMED.items()}
"""Our names -> the Kafka Connect sink's, for the reference."""

_FAMILIES = (("iceberg.catalog.", _PREFIX), ("iceberg.hadoop.", "spark.hadoop."))
_OF_THAT_SINK = ("iceberg.tables", "iceberg.control.", "iceberg.catalog", "iceberg.hadoop.", "iceberg.kafka.")
"""How keys begin that no file of another sink has."""
_KAFKA, _LOGIN = "iceberg.kafka.", ("security.", "sasl.", "ssl.")
"""That sink's own clients, and what of theirs says how to get in: its brokers are ours."""
_TABLE_PARTITION = re.compile(r"iceberg\.table\.(.+)\.partition-by")
_TRANSFORM = re.compile(r"transforms\.([^.]+)\.type")
_CONNECT_DEFAULTS = {
    f"{_PREFIX}allow-field-addition": "false",
    f"{_PREFIX}catalog-name": "iceberg",
    f"{_PREFIX}upsert-keep-deletes": "false",
    # Unwrapping adds no columns: that sink's tables have none of them.
    f"{_PREFIX}excluded-columns": "__deleted",
    "debezium.transforms.unwrap.add.fields": "",
    "iceberg.tables.auto-create-enabled": "false",
    # Record keys say nothing to that sink.
    "primary.key.mode": "record_value",
    f"{_PREFIX}create-identifier-fields": "false",
    "debezium.sink.batch.interval-ms": "300000",
}
NO_EFFECT = (
    "iceberg.control.",
    "iceberg.connect.",
    "iceberg.coordinator.",
    "iceberg.coordinator-",
    "iceberg.kafka.",
)
"""Families that steer the committing of several Connect workers: there is one committer here."""

REFUSED = {
    "iceberg.hadoop-conf-dir": "set the environment variable HADOOP_CONF_DIR to it, or give single settings as "
    "spark.hadoop.<key>",
}
FOREIGN_KEYS = (
    ForeignKeys(
        "these keys of Iceberg Kafka Connect steer its coordinator and have no effect here",
        frozenset(),
        NO_EFFECT,
        # `icebridge offsets reset --to group` looks there for commits that were not finished.
        read=(".control.topic", ".connect.group-id"),
    ),
    ForeignKeys("", frozenset(REFUSED)),
)
_OF_ONE_TABLE = (".route-regex", ".id-columns", ".commit-branch", ".write-mode", ".scd-type")
_KNOWN_TRANSFORMS = ("ExtractNewRecordState", "DebeziumTransform")
_BY_NAME = (
    "tables are named by debezium.sink.iceberg.destination-regexp and -replace, or each by "
    "iceberg.tables.topic-to-table-mapping"
)
_INSTEAD = {
    "InsertField$Value": "topics choose their tables without it, or by collection.name.format=${topic}",
    "RegexRouter": _BY_NAME,
    "ByLogicalTableRouter": _BY_NAME,
}
"""Transforms that people use with that sink -> what does here what they are for."""
_UNWRAPPED = "Debezium's envelopes are unwrapped without one"
_CDC_PATTERN = "{db}.{table}"
_CONTROL_TOPIC, _CONNECT_GROUP = "iceberg.control.topic", "iceberg.connect.group-id"
_DEFAULT_CONTROL_TOPIC = "control-iceberg"


@attrs.frozen
class ControlTopic:
    """Where that sink's workers tell its coordinator which files they wrote, and the group whose events are its own."""

    name: str
    group: str


def is_iceberg_kafka_connect(entries: Mapping[str, Entry]) -> bool:
    """Whether a file was written for that sink: by its class, or by a key that no other has."""
    return is_named(entries, ICEBERG_SINK_CLASS) or any(key.startswith(_OF_THAT_SINK) for key in entries)


def rename_entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries by our names, that sink's defaults below them; an entry keeps its key for messages.

    In a file that is not that sink's only what one table is partitioned by: the other options of one table have that
    sink's names in any file.
    """
    rename = _rename_key if is_iceberg_kafka_connect(entries) else _rename_partitions
    result: dict[str, Entry] = {}
    for key, entry in entries.items():
        name = rename(key)
        if name != key and name in entries and entries[name].layer >= entry.layer:
            continue  # said by its own name too
        if name not in result or entry.layer >= result[name].layer:
            result[name] = entry
    if is_named(entries, ICEBERG_SINK_CLASS):
        for key, text in _default_entries(result):
            result.setdefault(key, Entry(key, text, "defaults of Iceberg Kafka Connect", 0, -1))
    return result


def _default_entries(entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    yield from _CONNECT_DEFAULTS.items()
    # Its deltas are written when operations are told, or when everything is an upsert.
    yield f"{_PREFIX}upsert", "true" if f"{_PREFIX}upsert-op-field" in entries else "false"


def _rename_key(key: str) -> str:
    if key in _RENAMED:
        return _RENAMED[key]
    if _TABLE_PARTITION.fullmatch(key):
        return _rename_partitions(key)
    if key.removeprefix(_KAFKA).startswith(_LOGIN):
        return key.removeprefix(_KAFKA)
    for theirs, ours in _FAMILIES:
        if key.startswith(theirs):
            return ours + key.removeprefix(theirs)
    return key


def _rename_partitions(key: str) -> str:
    table = _TABLE_PARTITION.fullmatch(key)
    return f"{_PREFIX}partition-by.{table[1]}" if table else key


def check(reader: ConfigReader) -> None:
    """Refuse by name what that sink does and this one does not: transforms of its own."""
    for key, entry in reader.entries.items():
        if key in REFUSED and entry.text.strip():
            reader.add_fault(entry, "is not supported", REFUSED[key])
        if key.startswith("iceberg.table.") and not key.endswith(_OF_ONE_TABLE) and TABLE_INFIX not in key:
            reader.add_fault(
                entry,
                "is not a known key",
                f"write {', '.join(_OF_ONE_TABLE)}, .partition-by or .maintenance.* after the table",
            )
        if _TRANSFORM.fullmatch(key) and not entry.text.strip().endswith(_KNOWN_TRANSFORMS):
            instead = _INSTEAD.get(entry.text.strip().rpartition(".")[2], _UNWRAPPED)
            reader.add_fault(entry, "is a transform that is not applied here", f"take it out; {instead}")


def read_control_topic(reader: ConfigReader, name: str) -> ControlTopic | None:
    """Return the control topic of a file of that sink; None for another's file."""
    given = {
        key: entry.text.strip() for key, entry in reader.entries.items() if key in (_CONTROL_TOPIC, _CONNECT_GROUP)
    }
    if not given and not is_named(reader.entries, ICEBERG_SINK_CLASS):
        return None
    return ControlTopic(
        given.get(_CONTROL_TOPIC) or _DEFAULT_CONTROL_TOPIC, given.get(_CONNECT_GROUP) or f"connect-{name}"
    )


def cdc_target(reader: ConfigReader) -> str | None:
    """The template of `_cdc.target`, where Iceberg's DebeziumTransform is configured (its `cdc.target.pattern`)."""
    for key, entry in reader.entries.items():
        match = _TRANSFORM.fullmatch(key)
        if match and entry.text.strip().endswith("DebeziumTransform"):
            pattern = reader.entries.get(f"transforms.{match[1]}.cdc.target.pattern")
            text = pattern.text.strip() if pattern is not None else _CDC_PATTERN
            # That transform takes the schema for the database where the source has schemas.
            return text.replace("{db}", "${source.schema|source.db}").replace("{table}", "${source.table}")
    return None
