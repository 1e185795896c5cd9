"""Stored offset + `snapshot.mode` + the table's history -> what to do next with a table (pure).

One snapshot at a time, oldest first, never a gap and never a replay: where the stored position is
not in the history any more, the answer is an error that names both snapshots, or a new first read with `when_needed`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from itertools import pairwise

import attrs


class SnapshotMode(StrEnum):
    """What to read before changes, by Debezium's names."""

    INITIAL = "initial"
    NO_DATA = "no_data"
    INITIAL_ONLY = "initial_only"
    WHEN_NEEDED = "when_needed"
    ALWAYS = "always"


@attrs.frozen
class SnapshotProgress:
    """How far a first read has come: parts before `part`, of `part_bytes` each, are published."""

    snapshot_id: int
    part: int
    part_bytes: int


@attrs.frozen
class SnapshotOffset:
    """How far a source has published a table.

    Everything up to `snapshot_id` is published; None means that the table had no snapshot yet. While `reading` is set,
    a first read is under way and `snapshot_id` says nothing.
    """

    table_uuid: str
    snapshot_id: int | None
    reading: SnapshotProgress | None = None


@attrs.frozen
class Ancestor:
    """One snapshot of a table; `timestamp_ms` is its commit time."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str


@attrs.frozen
class TableHead:
    """What a poll sees: which table it is, and its newest snapshot on the branch (None: it has none)."""

    table_uuid: str
    snapshot_id: int | None


@attrs.frozen
class SnapshotLine:
    """The ancestors of the head that have not expired, oldest first, and all snapshots of the table on any branch."""

    ancestors: tuple[Ancestor, ...]
    retained: Collection[int]


@attrs.frozen
class Idle:
    """There is nothing new."""


@attrs.frozen
class Completed:
    """There will never be anything: `initial_only` has read the table."""


@attrs.frozen
class StartStreaming:
    """Store this offset and publish nothing: changes are published from here on."""

    snapshot_id: int | None


@attrs.frozen
class ReadSnapshot:
    """Read a snapshot in full, from this part on; `part_bytes` is set when a read continues, and then rules."""

    snapshot_id: int
    part: int = 0
    part_bytes: int | None = None


@attrs.frozen
class StreamChanges:
    """Publish the changes of this snapshot."""

    snapshot: Ancestor


@attrs.frozen
class SkipSnapshot:
    """Move past this snapshot, which changed no row."""

    snapshot: Ancestor


@attrs.frozen
class Fail:
    """Stop this table with a `GapError` for this reason."""

    reason: str


Decision = Idle | Completed | StartStreaming | ReadSnapshot | StreamChanges | SkipSnapshot | Fail
_COMPACTION = "replace"


def decide_next_step(
    table: str,
    position: SnapshotOffset | None,
    mode: SnapshotMode,
    head: TableHead,
    history: Callable[[], SnapshotLine],
    *,
    starting: bool = False,
) -> Decision:
    """Decide the next step for one table.

    Args:
        table: its name, for messages.
        position: what is stored; None when nothing is.
        mode: `snapshot.mode`.
        head: what the poll saw.
        history: asked only when the head is not the stored snapshot.
        starting: whether this is the first decision about the table in this run.
    """
    if position is None:
        return _decide_first(mode, head)
    if position.table_uuid != head.table_uuid:
        if mode == SnapshotMode.ALWAYS and starting:
            return _start_snapshot(head)
        return _handle_gap(table, position, mode, head, "it was replaced by another table of the same name")
    if position.reading is not None:
        return _continue_snapshot(table, position, position.reading, mode, head, history)
    return _continue(table, position, mode, head, history, starting=starting)


def _continue(
    table: str,
    position: SnapshotOffset,
    mode: SnapshotMode,
    head: TableHead,
    history: Callable[[], SnapshotLine],
    *,
    starting: bool,
) -> Decision:
    if mode == SnapshotMode.INITIAL_ONLY:
        return Completed() if position.snapshot_id is not None else _decide_first(mode, head)
    if mode == SnapshotMode.ALWAYS and starting:
        return _start_snapshot(head)
    if position.snapshot_id == head.snapshot_id:
        return Idle()
    return _decide_next(table, position, mode, head, history())


def _decide_first(mode: SnapshotMode, head: TableHead) -> Decision:
    if mode == SnapshotMode.NO_DATA:
        return StartStreaming(head.snapshot_id)
    if mode == SnapshotMode.INITIAL_ONLY and head.snapshot_id is None:
        return Idle()
    return _start_snapshot(head)


def _start_snapshot(head: TableHead) -> Decision:
    """Read the newest snapshot; a table without one begins empty, and its first snapshot will be a change."""
    return StartStreaming(None) if head.snapshot_id is None else ReadSnapshot(head.snapshot_id)


def _continue_snapshot(
    table: str,
    position: SnapshotOffset,
    reading: SnapshotProgress,
    mode: SnapshotMode,
    head: TableHead,
    history: Callable[[], SnapshotLine],
) -> Decision:
    if reading.snapshot_id == head.snapshot_id or reading.snapshot_id in history().retained:
        return ReadSnapshot(reading.snapshot_id, reading.part, reading.part_bytes)
    return _handle_gap(table, position, mode, head, "it expired while it was being read")


def _decide_next(
    table: str, position: SnapshotOffset, mode: SnapshotMode, head: TableHead, history: SnapshotLine
) -> Decision:
    after = _find_child(position.snapshot_id, history)
    if after is None:
        return _handle_gap(table, position, mode, head, _gap_reason(position.snapshot_id, history))
    return SkipSnapshot(after) if after.operation == _COMPACTION else StreamChanges(after)


def _find_child(snapshot_id: int | None, history: SnapshotLine) -> Ancestor | None:
    """Find the child of the stored snapshot among the ancestors of the head; the parent must still be there."""
    ancestors = history.ancestors
    if snapshot_id is None:
        return ancestors[0] if ancestors and ancestors[0].parent_id is None else None
    for known, child in pairwise(ancestors):
        if known.snapshot_id == snapshot_id:
            return child
    return None


def _gap_reason(snapshot_id: int | None, history: SnapshotLine) -> str:
    if snapshot_id is None:
        return "snapshots after the beginning of the table have expired"
    if snapshot_id in history.retained:
        return (
            "it is not an ancestor of the newest one: the table was rolled back or replaced (CREATE OR REPLACE TABLE), "
            "its branch was moved, or iceberg.branch names another one than before"
        )
    return "it has expired, or never belonged to this table"


def _handle_gap(table: str, position: SnapshotOffset, mode: SnapshotMode, head: TableHead, why: str) -> Decision:
    if mode == SnapshotMode.WHEN_NEEDED:
        return _start_snapshot(head)
    stored = position.reading.snapshot_id if position.reading is not None else position.snapshot_id
    return Fail(
        f"table {table}: changes cannot continue from snapshot {stored or 'none'} (table {position.table_uuid}) "
        f"to snapshot {head.snapshot_id or 'none'} (table {head.table_uuid}): {why}. Set snapshot.mode=when_needed to "
        "read the table again in full, or reset the stored position; consumers may hold rows that are gone"
    )
