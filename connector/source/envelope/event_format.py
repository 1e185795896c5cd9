"""Settings + a table at a snapshot -> the format of its events: topic, columns, key, source block (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from connector.settings import SourceSettings
from connector.source.changes.row_key import RowIdentity, RowKey
from connector.source.envelope.envelope import EventFormat
from connector.source.envelope.row_schema import describe_row, describe_row_key
from connector.source.snapshots.snapshot_info import SnapshotInfo
from serde.emit.envelope import SnapshotMarker, SourceInfo
from serde.emit.row_schema import RowStruct


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
    namespace, _, name = table.rpartition(".")
    return EventFormat(
        topic=outgoing.topic(table),
        row=row,
        key=describe_row_key(describe_row(schema), key),
        modes=outgoing.modes,
        origin=SourceInfo(
            version=version("icebridge"),
            server=outgoing.prefix,
            database=settings.catalog.name,
            schema=namespace,
            table=name,
            ts_ns=snapshot.ts_ns,
            snapshot=marker,
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_id,
            sequence_number=snapshot.sequence_number,
        ),
        moves=key.same != RowIdentity.NOTHING and not is_read,
        key_schemas=outgoing.key.schemas,
        value_schemas=outgoing.value.schemas,
        tombstones=outgoing.tombstones,
        skipped=outgoing.skipped,
        ordered=outgoing.transactions and not is_read,
    )
