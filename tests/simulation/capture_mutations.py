"""Known faults of sources -> this one with such a fault, for as long as a test needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from connector.source.snapshots import next_step, snapshot_info
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.table_capture import TableCapture
from tests.simulation.capture_process import MemoryPublisher, Published


@contextmanager
def positions_before_acknowledgements() -> Iterator[None]:
    """A position is stored before what lies before it is acknowledged: a crash between the two loses it."""
    waiting: list[tuple[MemoryPublisher, Published]] = []
    put = TableOffsetStore.put

    def publish(self: Any, changes: Any, table: Any) -> Mapping[str, int]:
        waiting[:] = [(self, Published(event, table.snapshot, table.is_read)) for event in changes]
        return {}

    def put_first(self: Any, table: str, offset: Any) -> None:
        put(self, table, offset)
        for publisher, record in waiting:
            publisher.send(record)
        waiting.clear()

    with patch.object(MemoryPublisher, "publish", publish), patch.object(TableOffsetStore, "put", put_first):
        yield


@contextmanager
def expired_snapshots_are_passed_over() -> Iterator[None]:
    """Where the stored snapshot has expired, the oldest that is left is taken for the next one."""
    whole = next_step._find_child

    def find(snapshot_id: int | None, history: Any) -> Any:
        return whole(snapshot_id, history) or next(iter(history.ancestors), None)

    with patch.object(next_step, "_find_child", find):
        yield


@contextmanager
def reads_begin_anew_at_the_newest_snapshot() -> Iterator[None]:
    """A read that was interrupted goes on in the newest snapshot, whose files are others."""

    def go_on(table: str, position: Any, reading: Any, mode: Any, head: Any, history: Any) -> Any:
        return next_step.ReadSnapshot(head.snapshot_id, reading.part, reading.part_bytes)

    with patch.object(next_step, "_continue_snapshot", go_on):
        yield


@contextmanager
def times_are_those_of_commits() -> Iterator[None]:
    """Two snapshots of one millisecond, or of a clock that was put back, have one time, or the later the earlier."""
    with patch.object(snapshot_info, "event_ts_ns", lambda snapshot_ms, _: snapshot_ms * 1_000_000):
        yield


@contextmanager
def only_the_newest_snapshot_is_compared() -> Iterator[None]:
    """A poll goes to the newest snapshot at once, and takes its changes for all that there are."""

    def find(_: int | None, history: Any) -> Any:
        return history.ancestors[-1] if history.ancestors else None

    with patch.object(next_step, "_find_child", find):
        yield


@contextmanager
def tables_are_known_by_their_names() -> Iterator[None]:
    """A table that was dropped and made again is taken for the one before."""
    whole = next_step.decide_next_step

    def decide(table: str, position: Any, mode: Any, head: Any, *others: Any, **more: Any) -> Any:
        if position is not None and position.table_uuid != head.table_uuid:
            position = next_step.SnapshotOffset(head.table_uuid, None)
        return whole(table, position, mode, head, *others, **more)

    with patch("connector.source.table_capture.decide_next_step", decide):
        yield


@contextmanager
def a_read_is_stored_once_it_is_through() -> Iterator[None]:
    """That a read has begun is not stored: after a crash it begins anew at a later one, beside what it published."""
    whole = TableCapture._store

    def store(self: Any, offset: Any) -> None:
        if offset.position.reading is None:
            whole(self, offset)

    with patch.object(TableCapture, "_store", store):
        yield


@contextmanager
def deletes_are_taken_for_rewrites() -> Iterator[None]:
    """A snapshot that only takes rows away is passed over as one that changed none."""
    whole = next_step._decide_next

    def decide(*values: Any) -> Any:
        found = whole(*values)
        is_delete = isinstance(found, next_step.StreamChanges) and found.snapshot.operation == "delete"
        return next_step.SkipSnapshot(found.snapshot) if is_delete else found

    with patch.object(next_step, "_decide_next", decide):
        yield


@contextmanager
def times_are_not_stored() -> Iterator[None]:
    """How late the last event was is not stored: behind a clock that was put back the next one is earlier."""

    def store(self: Any, before: Any, table: Any) -> None:
        self._store(before.advance_to(self.access.table.uuid, table.snapshot.snapshot_id))

    with patch.object(TableCapture, "_store_published", store):
        yield


CAPTURE_MUTATIONS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    made.__name__: made
    for made in (
        positions_before_acknowledgements,
        expired_snapshots_are_passed_over,
        reads_begin_anew_at_the_newest_snapshot,
        times_are_those_of_commits,
        only_the_newest_snapshot_is_compared,
        tables_are_known_by_their_names,
        a_read_is_stored_once_it_is_through,
        deletes_are_taken_for_rewrites,
        times_are_not_stored,
    )
}
