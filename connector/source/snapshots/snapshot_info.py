"""A snapshot in the table's history + the time of the events before -> the snapshot as its events name it (pure)."""

from __future__ import annotations

import attrs

from connector.source.snapshots.next_step import Ancestor

NS_PER_MS = 1_000_000
MIN_STEP_NS = 1_000
"""Two snapshots are at least this far apart: what orders the changes of one snapshot may be added to its time."""


@attrs.frozen
class SnapshotInfo:
    """A snapshot as its events name it; `ts_ns` is nanoseconds since 1970, see `event_ts_ns`."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    ts_ns: int

    @staticmethod
    def of(snapshot: Ancestor, before_ns: int | None) -> SnapshotInfo:
        """Describe a snapshot whose events come after those of `before_ns`, None where there are none before."""
        ts_ns = event_ts_ns(snapshot.timestamp_ms, before_ns)
        return SnapshotInfo(snapshot.snapshot_id, snapshot.parent_id, snapshot.sequence_number, ts_ns)


def event_ts_ns(snapshot_ms: int, before_ns: int | None) -> int:
    """Return the time of a snapshot's events in nanoseconds: its own, but later than that of the snapshot before.

    Iceberg's times are in milliseconds and may run backwards between writers; consumers that order events by
    `source.ts_ns` alone must not see two snapshots at one time, or a later one as the earlier.
    """
    committed_ns = snapshot_ms * NS_PER_MS
    return committed_ns if before_ns is None else max(committed_ns, before_ns + MIN_STEP_NS)
