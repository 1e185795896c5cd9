"""settings + a table at a snapshot -> how its events look: topic, columns, key, origin (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import attrs

from connector.settings import SourceSettings
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey
from connector.source.envelope import row_schema
from connector.source.envelope.envelope import ROW_ID_KEY, EventFormat
from serde.emit.envelope import SourceInfo
from serde.emit.row_schema import RowStruct

NS_PER_MS = 1_000_000
MIN_STEP_NS = 1_000
"""Between the times of two snapshots at least: what tells changes of one snapshot apart may be added to its time."""


@attrs.frozen
class SnapshotInfo:
    """A snapshot as its events name it; `ts_ns` is nanoseconds since 1970, see `event_ts_ns`."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    ts_ns: int


def event_ts_ns(snapshot_ms: int, before_ns: int | None) -> int:
    """Give the time of a snapshot's events in nanoseconds: the snapshot's own, but later than that of the one before.

    Iceberg's times are in milliseconds and may run backwards between writers; consumers that order events by
    `source.ts_ns` alone must not see two snapshots at one time, or a later one as the earlier.
    """
    own = snapshot_ms * NS_PER_MS
    return own if before_ns is None else max(own, before_ns + MIN_STEP_NS)


def build_event_format(
    settings: SourceSettings, table: str, schema: Mapping[str, Any], keys: RowKey, at: SnapshotInfo, *, reads: bool
) -> EventFormat:
    """Give how the events of a table look at a snapshot.

    Args:
        settings: modes, names, lists of columns.
        table: its name with namespace, dots between.
        schema: the snapshot's schema, Iceberg's JSON parsed.
        keys: what identifies its rows.
        at: the snapshot.
        reads: the rows are those of a full read.

    Raises:
        FatalError: a column has no form on the wire.
    """
    outgoing, whole = settings.outgoing, row_schema.describe_row(schema)
    kept = RowStruct(tuple(m for m in whole.members if settings.capture.keeps(table, m.name)))
    namespace, _, name = table.rpartition(".")
    by_row_id = keys.kind == KeyKind.ROW_ID
    key = ROW_ID_KEY if by_row_id else row_schema.describe_key(whole, keys.columns) if keys.columns else None
    row_schema.check_columns(table, kept, outgoing.modes)
    return EventFormat(
        topic=outgoing.topic(table),
        row=kept,
        key=key,
        modes=outgoing.modes,
        origin=SourceInfo(
            version=version("icebridge"),
            server=outgoing.prefix,
            database=settings.catalog.name,
            schema=namespace,
            table=name,
            ts_ns=at.ts_ns,
            snapshot=reads,
            snapshot_id=at.snapshot_id,
            parent_snapshot_id=at.parent_id,
            sequence_number=at.sequence_number,
        ),
        by_row_id=by_row_id,
        moves=keys.same != RowIdentity.NOTHING and not reads,
        key_schemas=outgoing.key.schemas,
        value_schemas=outgoing.value.schemas,
        tombstones=outgoing.tombstones,
        skipped=outgoing.skipped,
        ordered=outgoing.transactions and not reads,
    )
