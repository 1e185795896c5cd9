"""Stored position + `snapshot.mode` + the table's history -> what to do next with a table (pure).

One snapshot at a time, oldest first, never a gap and never a replay (design, section 3): where the stored position is
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
class Progress:
    """How far a first read has come: parts before `part`, of `part_bytes` each, are published."""

    snapshot_id: int
    part: int
    part_bytes: int


@attrs.frozen
class Position:
    """Where a connector stands in a table.

    Everything up to `snapshot_id` is published; None means that the table had no snapshot yet. While `reading` is set,
    a first read is under way and `snapshot_id` says nothing.
    """

    table_uuid: str
    snapshot_id: int | None
    reading: Progress | None = None


@attrs.frozen
class Ancestor:
    """One snapshot of a table; `timestamp_ms` is its commit time."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str


@attrs.frozen
class Head:
    """What a poll sees: which table it is, and its newest snapshot on the branch (None: it has none)."""

    table_uuid: str
    snapshot_id: int | None


@attrs.frozen
class History:
    """The ancestors of the head that have not expired, oldest first, and all snapshots of the table on any branch."""

    ancestors: tuple[Ancestor, ...]
    retained: Collection[int]


@attrs.frozen
class Idle:
    """There is nothing new."""


@attrs.frozen
class Done:
    """There will never be anything: `initial_only` has read the table."""


@attrs.frozen
class Begin:
    """Store this position and publish nothing: changes count from here."""

    snapshot_id: int | None


@attrs.frozen
class Read:
    """Read a snapshot in full, from this part on; `part_bytes` is set when a read goes on, and then rules."""

    snapshot_id: int
    part: int = 0
    part_bytes: int | None = None


@attrs.frozen
class Change:
    """Publish the changes of this snapshot."""

    snapshot: Ancestor


@attrs.frozen
class Skip:
    """Move past this snapshot, which changed no row."""

    snapshot: Ancestor


@attrs.frozen
class Stop:
    """Give this table up, with this reason; it is for a `GapError`."""

    reason: str


Decision = Idle | Done | Begin | Read | Change | Skip | Stop
_COMPACTION = "replace"


def decide(
    table: str,
    position: Position | None,
    mode: SnapshotMode,
    head: Head,
    history: Callable[[], History],
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
        return _first(mode, head)
    if position.table_uuid != head.table_uuid:
        return _lost(table, position, mode, head, "it was replaced by another table of the same name")
    if position.reading is not None:
        return _reading(table, position, position.reading, mode, head, history)
    return _follow(table, position, mode, head, history, starting=starting)


def _follow(
    table: str,
    position: Position,
    mode: SnapshotMode,
    head: Head,
    history: Callable[[], History],
    *,
    starting: bool,
) -> Decision:
    if mode == SnapshotMode.INITIAL_ONLY:
        return Done() if position.snapshot_id is not None else _first(mode, head)
    if mode == SnapshotMode.ALWAYS and starting:
        return _read(head)
    if position.snapshot_id == head.snapshot_id:
        return Idle()
    return _next(table, position, mode, head, history())


def _first(mode: SnapshotMode, head: Head) -> Decision:
    if mode == SnapshotMode.NO_DATA:
        return Begin(head.snapshot_id)
    if mode == SnapshotMode.INITIAL_ONLY and head.snapshot_id is None:
        return Idle()
    return _read(head)


def _read(head: Head) -> Decision:
    """Read the newest snapshot; a table without one begins empty, and its first snapshot will be a change."""
    return Begin(None) if head.snapshot_id is None else Read(head.snapshot_id)


def _reading(
    table: str, position: Position, reading: Progress, mode: SnapshotMode, head: Head, history: Callable[[], History]
) -> Decision:
    if reading.snapshot_id == head.snapshot_id or reading.snapshot_id in history().retained:
        return Read(reading.snapshot_id, reading.part, reading.part_bytes)
    return _lost(table, position, mode, head, "it expired while it was being read")


def _next(table: str, position: Position, mode: SnapshotMode, head: Head, history: History) -> Decision:
    after = _after(position.snapshot_id, history)
    if after is None:
        return _lost(table, position, mode, head, _reason(position.snapshot_id, history))
    return Skip(after) if after.operation == _COMPACTION else Change(after)


def _after(snapshot_id: int | None, history: History) -> Ancestor | None:
    """Find the child of the stored snapshot among the ancestors of the head; the parent must still be there."""
    ancestors = history.ancestors
    if snapshot_id is None:
        return ancestors[0] if ancestors and ancestors[0].parent_id is None else None
    for known, child in pairwise(ancestors):
        if known.snapshot_id == snapshot_id:
            return child
    return None


def _reason(snapshot_id: int | None, history: History) -> str:
    if snapshot_id is None:
        return "snapshots after the beginning of the table have expired"
    if snapshot_id in history.retained:
        return "it is not an ancestor of the newest one: the table was rolled back, or its branch was moved"
    return "it has expired, or never belonged to this table"


def _lost(table: str, position: Position, mode: SnapshotMode, head: Head, why: str) -> Decision:
    if mode == SnapshotMode.WHEN_NEEDED:
        return _read(head)
    stored = position.reading.snapshot_id if position.reading is not None else position.snapshot_id
    return Stop(
        f"table {table}: changes cannot go on from snapshot {stored or 'none'} (table {position.table_uuid}) "
        f"to snapshot {head.snapshot_id or 'none'} (table {head.table_uuid}): {why}. Set snapshot.mode=when_needed to "
        "read the table again in full, or reset the stored position; consumers may hold rows that are gone"
    )
