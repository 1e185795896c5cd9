"""A row's description + where it is from -> Debezium's envelope: its schema, and its `source` block.

The order of fields is the one that Debezium 3.7 puts on the wire (recorded events in tests/fixtures).
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen

from serde.emit.connect_schema import Document, primitive, schema, struct
from serde.emit.name_adjustment import adjust_schema_name
from serde.emit.row_schema import RowStruct
from serde.emit.type_mapping import HandlingModes

CONNECTOR = "iceberg"
SOURCE_NAME = "io.debezium.connector.iceberg.Source"
_US, _NS = 1_000, 1_000_000
SnapshotMarker = Literal["true", "false", "incremental"]
_SNAPSHOT = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


@frozen
class SourceInfo:
    """Where a snapshot's changes are from; everything about them that does not differ from row to row.

    `ts_ns` is nanoseconds since 1970; `snapshot` is true for rows of a full read, incremental
    for those of one beside changes. `database` is the catalog's name and
    `schema` the namespace, so that topics read `<prefix>.<schema>.<table>` as with Debezium's PostgreSQL connector.
    """

    version: str
    server: str
    database: str
    schema: str
    table: str
    ts_ns: int
    snapshot: SnapshotMarker
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int

    def document(self) -> dict[str, Any]:
        """The `source` block of every envelope."""
        return {
            "version": self.version,
            "connector": CONNECTOR,
            "name": self.server,
            "ts_ms": self.ts_ns // _NS,
            "snapshot": self.snapshot,
            "db": self.database,
            "sequence": f'["{self.sequence_number}"]',
            "ts_us": self.ts_ns // _US,
            "ts_ns": self.ts_ns,
            "schema": self.schema,
            "table": self.table,
            "snapshot_id": self.snapshot_id,
            "parent_snapshot_id": self.parent_snapshot_id,
            "sequence_number": self.sequence_number,
        }

    def times(self) -> dict[str, int]:
        """The envelope's own times: the snapshot's too, so that a replay gives the same bytes."""
        return {"ts_ms": self.ts_ns // _NS, "ts_us": self.ts_ns // _US, "ts_ns": self.ts_ns}


def _long(*, optional: bool) -> Document:
    return primitive("int64", optional=optional)


def _text(*, optional: bool = False) -> Document:
    return primitive("string", optional=optional)


def source_schema() -> Document:
    """The schema of the `source` block: Debezium's common fields, then ours."""
    snapshot = primitive(
        "string",
        optional=True,
        name="io.debezium.data.Enum",
        version=1,
        parameters={"allowed": _SNAPSHOT},
        default="false",
    )
    fields = {
        "version": _text(),
        "connector": _text(),
        "name": _text(),
        "ts_ms": _long(optional=False),
        "snapshot": snapshot,
        "db": _text(),
        "sequence": _text(optional=True),
        "ts_us": _long(optional=True),
        "ts_ns": _long(optional=True),
        "schema": _text(),
        "table": _text(),
        "snapshot_id": _long(optional=True),
        "parent_snapshot_id": _long(optional=True),
        "sequence_number": _long(optional=True),
    }
    return struct(fields, optional=False, name=SOURCE_NAME, version=1)


def transaction_schema() -> Document:
    """The schema of the `transaction` block."""
    fields = {
        "id": _text(),
        "total_order": _long(optional=False),
        "data_collection_order": _long(optional=False),
    }
    return struct(fields, optional=True, name="event.block", version=1)


def value_schema(topic: str, row: RowStruct, modes: HandlingModes) -> Document:
    """The schema of an envelope of a topic."""
    image = schema(row, modes, f"{topic}.Value", optional=True)
    fields = {
        "before": image,
        "after": image,
        "source": source_schema(),
        "transaction": transaction_schema(),
        "op": _text(),
        "ts_ms": _long(optional=True),
        "ts_us": _long(optional=True),
        "ts_ns": _long(optional=True),
    }
    return struct(fields, optional=False, name=adjust_schema_name(f"{topic}.Envelope", modes.names), version=2)


def key_schema(topic: str, key: RowStruct, modes: HandlingModes) -> Document:
    """The schema of a record key of a topic."""
    return schema(key, modes, f"{topic}.Key", optional=False)
