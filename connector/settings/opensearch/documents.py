"""properties -> OpenSearchSettings: where documents go and what they look like.

Names: Aiven's sink, where it has one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    LIST,
    TEXT,
    InvalidValue,
    ValueType,
    one_of,
    split_list,
    topic_pairs,
)
from connector.settings.opensearch import aiven, connection, data_streams
from connector.settings.opensearch.connection import BULK_OPTIONS, CONNECTION_OPTIONS, BulkSettings, ConnectionSettings


def _parse_metadata(text: str) -> tuple[str, ...]:
    known = ("iceberg_operation", "iceberg_table_name", "iceberg_snapshot_id", "document_id", "bulk_action")
    if not set(split_list(text)) <= set(known):
        raise InvalidValue("{} holds an unknown field", f"write some of {', '.join(known)}")
    return split_list(text)


def _is_name(text: str) -> bool:
    """Tell whether an index or alias may be called so: a pattern would stand for others beside it."""
    return re.fullmatch(r'[^\\/*?"<>|\s#_+-][^\\/*?"<>|\s#]*', text) is not None


KEY_IGNORE = Option(
    name="key.ignore",
    kind=BOOLEAN,
    default=False,
    importance="high",
    doc="Ignore record keys: every event becomes its own document.",
)
TOPIC_KEY_IGNORE = Option(
    name="topic.key.ignore", kind=LIST, default=(), importance="low", doc="Topics for which key.ignore is true."
)
ID_STRATEGY = Option(
    name="key.ignore.id.strategy",
    kind=one_of("topic.partition.offset", "none", "record.key"),
    default="topic.partition.offset",
    importance="low",
    doc="With key.ignore: ids of documents. none gives the same ids here; record.key is what key.ignore=false does.",
)
SCHEMA_IGNORE = Option(
    name="schema.ignore",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Create no mapping: leave it to dynamic mapping or to your index template.",
)
TOPIC_SCHEMA_IGNORE = Option(
    name="topic.schema.ignore", kind=LIST, default=(), importance="low", doc="Topics for which schema.ignore is true."
)
WRITE_METHOD = Option(
    name="index.write.method",
    kind=one_of("insert", "upsert", any_case=True),
    default="insert",
    importance="medium",
    doc="insert replaces documents whole, guarded by versions; upsert leaves the fields of other programs.",
)
NULL_VALUES = Option(
    name="behavior.on.null.values",
    kind=one_of("ignore", "delete", "fail", any_case=True),
    default="delete",
    importance="medium",
    doc="What a tombstone does: delete its document, ignore it, or fail.",
)
MALFORMED = Option(
    name="behavior.on.malformed.documents",
    kind=one_of("report", "ignore", "warn", "fail", any_case=True),
    default="report",
    importance="medium",
    doc="If the index rejects a document: report makes its record a dead letter; ignore and warn drop it.",
)
CONFLICT = Option(
    name="behavior.on.version.conflict",
    kind=one_of("ignore", "warn", "fail", any_case=True),
    default="ignore",
    importance="low",
    doc="If a change is older than the indexed document it is dropped; warn also logs it, fail stops instead.",
)
INDEX_MAP = Option(
    name="topic.to.existing.resource.mapping",
    kind=topic_pairs("index", _is_name),
    default=(),
    importance="medium",
    doc="Existing indexes or aliases, as topic:index pairs; other indexes are named after their topic.",
    aliases=("topic.index.map",),
)
GC_DELETES = Option(
    name="index.gc_deletes",
    kind=TEXT,
    default="1h",
    importance="low",
    doc="How long new indexes keep versions of deleted documents, so that an older change cannot re-create them.",
)
METADATA = Option(
    name="iceberg.metadata.fields",
    kind=ValueType("list", _parse_metadata),
    default=(),
    importance="low",
    doc="Added fields: iceberg_operation, iceberg_table_name, iceberg_snapshot_id, document_id, bulk_action.",
)
OPTIONS: tuple[Option[object], ...] = (
    *CONNECTION_OPTIONS,
    *BULK_OPTIONS,
    KEY_IGNORE,
    TOPIC_KEY_IGNORE,
    ID_STRATEGY,
    SCHEMA_IGNORE,
    TOPIC_SCHEMA_IGNORE,
    WRITE_METHOD,
    NULL_VALUES,
    MALFORMED,
    CONFLICT,
    INDEX_MAP,
    GC_DELETES,
    *data_streams.OPTIONS,
)
SOURCE_OPTIONS: tuple[Option[object], ...] = (
    *CONNECTION_OPTIONS,
    *BULK_OPTIONS,
    SCHEMA_IGNORE,
    MALFORMED,
    CONFLICT,
    GC_DELETES,
    METADATA,
)
"""Those of a source that writes documents itself, and METADATA, which only it has."""


@attrs.frozen
class OpenSearchSettings:
    """What documents look like, and where they go."""

    connection: ConnectionSettings
    bulk: BulkSettings
    key_ignore: bool
    topic_key_ignore: tuple[str, ...]
    schema_ignore: bool
    topic_schema_ignore: tuple[str, ...]
    partial: bool
    null_values: Literal["ignore", "delete", "fail"]
    malformed: Literal["report", "ignore", "warn", "fail"]
    conflict: Literal["ignore", "warn", "fail"]
    existing: Mapping[str, str]
    gc_deletes: str = GC_DELETES.default
    metadata: tuple[str, ...] = ()
    series: data_streams.DataStreamSettings = data_streams.DataStreamSettings()


def build(reader: ConfigReader) -> OpenSearchSettings:
    """Read the OpenSearch part; faults go to the reader."""
    aiven.check(reader)
    _check_id_strategy(reader)
    return OpenSearchSettings(
        connection=connection.build_connection(reader),
        bulk=connection.build_bulk(reader),
        key_ignore=reader.get(KEY_IGNORE),
        topic_key_ignore=reader.get(TOPIC_KEY_IGNORE),
        schema_ignore=reader.get(SCHEMA_IGNORE),
        topic_schema_ignore=reader.get(TOPIC_SCHEMA_IGNORE),
        partial=reader.get(WRITE_METHOD) == "upsert",
        null_values=cast("Literal['ignore', 'delete', 'fail']", reader.get(NULL_VALUES)),
        malformed=cast("Literal['report', 'ignore', 'warn', 'fail']", reader.get(MALFORMED)),
        conflict=cast("Literal['ignore', 'warn', 'fail']", reader.get(CONFLICT)),
        existing=dict(reader.get(INDEX_MAP)),
        gc_deletes=reader.get(GC_DELETES),
        metadata=reader.get(METADATA),
        series=data_streams.build(reader),
    )


def _check_id_strategy(reader: ConfigReader) -> None:
    entry = reader.entry(ID_STRATEGY)
    ignored = reader.get(KEY_IGNORE) or reader.get(TOPIC_KEY_IGNORE)
    if entry is not None and ignored and reader.get(ID_STRATEGY) == "record.key":
        reader.add_fault(
            entry,
            "names documents by their keys, which key.ignore leaves out",
            f"take {KEY_IGNORE.name} and {TOPIC_KEY_IGNORE.name} out: documents are named by their keys then",
        )


def check_absent(reader: ConfigReader) -> None:
    """Refuse options of the OpenSearch sink in another sink's file."""
    for option in OPTIONS:
        entry = reader.entry(option)
        if entry is not None:
            reader.add_fault(entry, "is an option of the OpenSearch sink", "set debezium.sink.type=opensearch")
