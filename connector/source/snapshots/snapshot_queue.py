"""Signals -> the snapshots on demand that a source still has to read; stored in its own row of the offsets (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import orjson

from connector.runtime.monitoring.listeners import SnapshotAggregate, SnapshotReport, SnapshotStage
from connector.source.snapshots.chunks import ChunkProgress
from connector.source.snapshots.signal import (
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    SnapshotKind,
    StopSnapshot,
    matches,
)

MAX_QUEUED = 16
"""Snapshots that wait for one table at most: a sender gone wild must not fill the offsets."""
AGGREGATES: Mapping[SnapshotKind, SnapshotAggregate] = {
    SnapshotKind.INCREMENTAL: "Incremental Snapshot",
    SnapshotKind.BLOCKING: "Initial Snapshot",
}


@attrs.frozen
class QueuedSnapshot:
    """A snapshot of one table that a signal asked for; `progress` is None before its first chunk."""

    id: str
    table: str
    kind: SnapshotKind = SnapshotKind.INCREMENTAL
    filter: str = ""
    progress: ChunkProgress | None = None

    @property
    def is_blocking(self) -> bool:
        """Whether changes wait until it is read."""
        return self.kind == SnapshotKind.BLOCKING

    def is_same(self, other: QueuedSnapshot) -> bool:
        """Whether the other is this one, however far it is."""
        return (self.id, self.table, self.kind) == (other.id, other.table, other.kind)


@attrs.frozen
class SnapshotQueue:
    """Snapshots on demand, oldest first, whether incremental ones are held up, and how far each channel is read."""

    snapshots: tuple[QueuedSnapshot, ...] = ()
    paused: bool = False
    channels: Mapping[str, Any] = attrs.field(factory=dict)

    def first(self, table: str) -> QueuedSnapshot | None:
        """Return the snapshot of a table whose turn it is; None where there is none, or all are held up.

        A pause lets blocking ones pass those that it holds up; one that has begun keeps its turn when it ends.
        """
        free = [one for one in self.snapshots if one.table == table and not (self.paused and not one.is_blocking)]
        begun = (one for one in free if one.is_blocking and one.progress is not None)
        return next(begun, free[0] if free else None)

    def advance(self, snapshot: QueuedSnapshot, progress: ChunkProgress) -> SnapshotQueue:
        """Return the queue when a snapshot is as far as `progress` says."""
        moved = tuple(attrs.evolve(one, progress=progress) if one.is_same(snapshot) else one for one in self.snapshots)
        return attrs.evolve(self, snapshots=moved)

    def without(self, snapshot: QueuedSnapshot) -> SnapshotQueue:
        """Return the queue when a snapshot is over."""
        kept = tuple(one for one in self.snapshots if not one.is_same(snapshot))
        has_incremental = any(one.kind == SnapshotKind.INCREMENTAL for one in kept)
        return attrs.evolve(self, snapshots=kept, paused=self.paused and has_incremental)

    def tables_of(self, snapshot: QueuedSnapshot) -> tuple[str, ...]:
        """Return the tables that a snapshot's signal asked for and that are not done."""
        return tuple(one.table for one in self.snapshots if (one.id, one.kind) == (snapshot.id, snapshot.kind))

    def read_to(self, channel: str, position: Any) -> SnapshotQueue:
        """Return the queue when a channel is read up to a position."""
        return attrs.evolve(self, channels={**self.channels, channel: position})

    def json(self) -> str:
        """Return the text that is stored."""
        document = {
            "snapshots": [_to_document(one) for one in self.snapshots],
            "paused": self.paused,
            "signals": dict(self.channels),
        }
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()

    @staticmethod
    def parse(text: str | None) -> SnapshotQueue:
        """Read what `json` wrote; None: nothing was stored."""
        if text is None:
            return SnapshotQueue()
        document = orjson.loads(text)
        snapshots = tuple(map(_from_document, document.get("snapshots", ())))
        return SnapshotQueue(snapshots, document.get("paused", False), document.get("signals", {}))


@attrs.frozen
class Outcome:
    """What became of a signal: the queue after it, what is told about it, and what a person should know."""

    queue: SnapshotQueue
    reports: tuple[SnapshotReport, ...] = ()
    notes: tuple[str, ...] = ()


def apply_signal(queue: SnapshotQueue, signal: Signal, tables: Collection[str]) -> Outcome:
    """Return what a signal does to the queue.

    Args:
        queue: before it.
        signal: what it asks for.
        tables: the tables that the source reads.
    """
    match signal:
        case ExecuteSnapshot():
            return _execute(queue, signal, tables)
        case StopSnapshot():
            return _stop(queue, signal)
        case PauseSnapshot():
            return _pause(queue, signal.id, paused=True)
        case ResumeSnapshot():
            return _pause(queue, signal.id, paused=False)
        case LogMessage():
            return Outcome(queue)


def report_queue(queue: SnapshotQueue) -> list[SnapshotReport]:
    """Return what was told of the snapshots that are under way, and whether they are paused: for who begins to count.

    Whoever was told before, by another process, is not told again.
    """
    reports = _report_each(queue.snapshots, "STARTED")
    incremental = tuple(one.table for one in queue.snapshots if one.kind == SnapshotKind.INCREMENTAL)
    return [*reports, *([SnapshotReport("Incremental Snapshot", "PAUSED", "", incremental)] if queue.paused else [])]


def drop_excluded(queue: SnapshotQueue, takes: Callable[[str], bool]) -> Outcome:
    """Return the queue without the snapshots of tables that the source reads no more: their signals would never end."""
    excluded = [one for one in queue.snapshots if not takes(one.table)]
    after = queue
    for one in excluded:
        after = after.without(one)
    notes = tuple(f"the source does not read {one.table} any more: its snapshot is given up" for one in excluded)
    return Outcome(after, tuple(_report_each(excluded, "ABORTED")), notes)


def _execute(queue: SnapshotQueue, signal: ExecuteSnapshot, tables: Collection[str]) -> Outcome:
    chosen = [name for name in sorted(tables) if any(matches(pattern, name) for pattern in signal.collections)]
    if not chosen:
        return Outcome(queue, notes=("the source reads no table of these names",))
    wanted = [QueuedSnapshot(signal.id, name, signal.kind, signal.filter_of(name)) for name in chosen]
    notes, added = [], list[QueuedSnapshot]()
    for one in wanted:
        waiting = [other for other in queue.snapshots if other.table == one.table]
        if any(other.is_same(one) for other in waiting):
            notes.append(f"a snapshot of {one.table} by this id is under way already")
        elif len(waiting) >= MAX_QUEUED:
            notes.append(f"{MAX_QUEUED} snapshots of {one.table} wait already")
        else:
            added.append(one)
    if not added:
        return Outcome(queue, notes=tuple(notes))
    after = attrs.evolve(queue, snapshots=(*queue.snapshots, *added))
    names = tuple(one.table for one in added)
    report = SnapshotReport(AGGREGATES[signal.kind], "STARTED", signal.id, names)
    return Outcome(after, (report,), tuple(notes))


def _stop(queue: SnapshotQueue, signal: StopSnapshot) -> Outcome:
    stopped = [
        one
        for one in queue.snapshots
        if signal.kind in (None, one.kind)
        and (not signal.collections or any(matches(pattern, one.table) for pattern in signal.collections))
    ]
    if not stopped:
        return Outcome(queue, notes=("no such snapshot is under way",))
    after = queue
    for one in stopped:
        after = after.without(one)
    return Outcome(after, tuple(_report_each(stopped, "ABORTED")))


def _pause(queue: SnapshotQueue, signal: str, *, paused: bool) -> Outcome:
    to_pause = [one for one in queue.snapshots if one.kind == SnapshotKind.INCREMENTAL]
    if not to_pause:
        return Outcome(queue, notes=("no incremental snapshot is under way",))
    if queue.paused == paused:
        return Outcome(queue, notes=(f"incremental snapshots are {'paused' if paused else 'going on'} already",))
    tables = tuple(one.table for one in to_pause)
    report = SnapshotReport("Incremental Snapshot", "PAUSED" if paused else "RESUMED", signal, tables)
    return Outcome(attrs.evolve(queue, paused=paused), (report,))


def _report_each(snapshots: Sequence[QueuedSnapshot], stage: SnapshotStage) -> list[SnapshotReport]:
    """Return one report for each signal that had asked for some of the snapshots."""
    groups: dict[tuple[str, SnapshotKind], list[str]] = {}
    for one in snapshots:
        groups.setdefault((one.id, one.kind), []).append(one.table)
    return [SnapshotReport(AGGREGATES[kind], stage, signal, tuple(names)) for (signal, kind), names in groups.items()]


def _to_document(snapshot: QueuedSnapshot) -> dict[str, Any]:
    document: dict[str, Any] = {"id": snapshot.id, "table": snapshot.table, "type": snapshot.kind.value}
    if snapshot.filter:
        document["filter"] = snapshot.filter
    if snapshot.progress is not None:
        progress = attrs.asdict(snapshot.progress)
        document["progress"] = {name.replace("_", "-"): value for name, value in progress.items()}
    return document


def _from_document(document: dict[str, Any]) -> QueuedSnapshot:
    progress = document.get("progress")
    chunk_progress = (
        None if progress is None else ChunkProgress(**{k.replace("-", "_"): v for k, v in progress.items()})
    )
    return QueuedSnapshot(
        document["id"], document["table"], SnapshotKind(document["type"]), document.get("filter", ""), chunk_progress
    )
