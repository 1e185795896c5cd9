"""Settings + a table at a snapshot -> the format of its events: topic, columns, key, source block (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import attrs

from connector.settings import SourceSettings
from connector.source.changes.row_key import RowIdentity, RowKey
from connector.source.envelope.row_schema import RecordKey, describe_row, describe_row_key
from connector.source.snapshots.snapshot_info import SnapshotInfo
from serde.emit.connect_schema import Document
from serde.emit.envelope import SnapshotMarker, SourceInfo, key_schema, value_schema
from serde.emit.row_schema import RowStruct
from serde.emit.type_mapping import HandlingModes


@attrs.frozen
class EventFormat:
    """How the events of one table look at one snapshot.

    `row` describes the columns of both images; `key` those of the record key, None for records without key.
    `moves` says that an update may change the key. `ordered` says that
    the frame has `total_order`, so that events carry a `transaction` block. `key_schemas` and `value_schemas`
    say whether JSON has schema blocks.
    """

    topic: str
    row: RowStruct
    key: RecordKey | None
    modes: HandlingModes
    origin: SourceInfo
    moves: bool = False
    key_schemas: bool = True
    value_schemas: bool = True
    tombstones: bool = True
    skipped: frozenset[str] = frozenset()
    ordered: bool = False

    @property
    def transaction(self) -> str:
        """The id of the snapshot as a transaction: one per table and snapshot."""
        return f"{self.origin.snapshot_id}:{self.origin.sequence_number}"

    @property
    def key_schema(self) -> Document | None:
        """The Connect schema of record keys; None for records without."""
        return None if self.key is None else key_schema(self.topic, self.key.record, self.modes)

    @property
    def value_schema(self) -> Document:
        """The Connect schema of record values."""
        return value_schema(self.topic, self.row, self.modes)

    @property
    def constant(self) -> dict[str, Any]:
        """The fields of the value that are the same in all records."""
        fields = {"source": self.origin.document(), **self.origin.times()}
        return fields if self.ordered else {**fields, "transaction": None}


def build_event_format(
    settings: SourceSettings,
    table: str,
    schema: Mapping[str, Any],
    row: RowStruct,
    key: RowKey,
    snapshot: SnapshotInfo,
    *,
    marker: SnapshotMarker,
) -> EventFormat:
    """Build the format of a table's events at a snapshot.

    Args:
        settings: modes, names, lists of columns.
        table: its name with namespace, dots between.
        schema: the snapshot's schema, Iceberg's JSON parsed.
        row: the columns that are published.
        key: what identifies its rows.
        snapshot: the snapshot.
        marker: what the rows are: changes (false), or reads of a kind.
    """
    outgoing, is_read = settings.outgoing, marker != "false"
    return EventFormat(
        topic=outgoing.topic(table),
        row=row,
        key=describe_row_key(describe_row(schema), key),
        modes=outgoing.modes,
        origin=_build_source_info(settings, table, snapshot, marker),
        moves=key.same != RowIdentity.NOTHING and not is_read,
        key_schemas=outgoing.key.schemas,
        value_schemas=outgoing.value.schemas,
        tombstones=outgoing.tombstones,
        skipped=outgoing.skipped,
        ordered=outgoing.transactions and not is_read,
    )


def _build_source_info(
    settings: SourceSettings, table: str, snapshot: SnapshotInfo, marker: SnapshotMarker
) -> SourceInfo:
    namespace, _, name = table.rpartition(".")
    return SourceInfo(
        version=version("icebridge"),
        server=settings.outgoing.prefix,
        database=settings.catalog.name,
        schema=namespace,
        table=name,
        ts_ns=snapshot.ts_ns,
        snapshot=marker,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_id,
        sequence_number=snapshot.sequence_number,
    )
