"""A process of the source: the product's own steps, offsets and decisions, over a catalog and a topic in memory.

What Spark does is done over rows in lists: a part of a snapshot is read, and a snapshot is compared with its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import attrs

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.snapshots import Json, SnapshotHistory
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.runtime.retry import call_with_retries
from connector.settings import SourceSettings
from connector.source import table_access, table_capture
from connector.source.capture_reports import CaptureReports
from connector.source.changes import initial_snapshot
from connector.source.changes.initial_snapshot import SnapshotPart
from connector.source.destination import CapturedTable, ChangePublisher, PublishTarget
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.snapshot_info import SnapshotInfo
from connector.source.table_access import TableAccess
from connector.source.table_capture import TableCapture
from tests.simulation.catalog_server import CatalogServer
from tests.simulation.interruptions import Interruptions
from tests.simulation.java_table import JavaTable
from tests.simulation.row_search import plan_files
from tests.simulation.store import store_away
from tests.simulation.tables import SimulatedCatalog

NAME, TABLE = "simulated", "d.rows"
Values = dict[int, int]
"""Rows by key."""


@attrs.frozen
class Event:
    """A change of a key: `n` is None where it is gone."""

    op: str
    key: int
    n: int | None


@attrs.frozen
class Published:
    """A record of the topic, with the snapshot as it names it; `read`: of a snapshot in full."""

    event: Event
    snapshot: SnapshotInfo
    read: bool


@attrs.frozen(eq=False)
class CaptureSurroundings:
    """What all processes share; `topic` has what is acknowledged, and what was sent without an answer."""

    server: CatalogServer
    calls: Interruptions
    topic: list[Published] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class MemoryPublisher(ChangePublisher):
    """Sends records, one call each."""

    around: CaptureSurroundings

    def target(self, table: str) -> PublishTarget:
        return PublishTarget("topic", table)

    def check_columns(self, table: CapturedTable) -> None:
        pass

    def check_target(self, table: CapturedTable, target_id: str) -> None:
        pass

    def target_id(self, table: CapturedTable) -> str:
        return ""

    def schema_changed(self, table: CapturedTable, *, created: bool) -> None:
        pass

    def publish(self, changes: Any, table: CapturedTable) -> Mapping[str, int]:
        for event in changes:
            self.send(Published(event, table.snapshot, table.is_read))
        return {}

    def send(self, record: Published) -> None:
        """Send a record."""
        self.around.calls.send(f"send {record.event.key}", lambda: self.around.topic.append(record))

    def heartbeat(self, ts_ms: int) -> None:
        pass


class MemoryHistory(SnapshotHistory):
    """The snapshots as the table was last read."""

    def retained(self) -> dict[int, Json]:
        java: JavaTable = self._table.java
        return {one.id: _describe(one) for one in java.now.snapshots.values()}


def _describe(one: Any) -> Json:
    files = sum(file.is_data for file in one.files)
    summary = {**one.summary, "operation": one.operation, "total-files-size": str(files), "total-records": str(files)}
    return {
        "snapshot-id": one.id,
        "parent-snapshot-id": one.parent,
        "sequence-number": one.number,
        "timestamp-ms": one.made_ms,
        "summary": summary,
    }


def open_capture(around: CaptureSurroundings, settings: SourceSettings) -> TableCapture:
    """Start a process; raises as the product does."""
    catalog = SimulatedCatalog(around.server, around.calls, settings.errors, lambda: None)
    rows = call_with_retries(lambda: OffsetRows(catalog, settings.capture.offsets_table, NAME, SOURCE), settings.errors)
    offsets = TableOffsetStore(rows, NAME, settings.errors)
    table = call_with_retries(lambda: catalog.load(TABLE), settings.errors)
    assert table is not None
    history = MemoryHistory(None, table)  # type: ignore[arg-type]
    access = TableAccess(None, settings, table, history, offsets, MemoryPublisher(around))  # type: ignore[arg-type]
    return TableCapture(access, CaptureReports(access.name))


# --- what Spark does -----------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class MemoryReader:
    """In the place of `table_reader.TableReader`."""

    spark: None
    table: Any
    schema: SnapshotSchema


def _find_schema(_: Any, table: Any, snapshot_id: int) -> SnapshotSchema:
    if table.java.snapshot(snapshot_id) is None:
        raise GapError(f"table {table.name} has no snapshot {snapshot_id} any more: it has expired")
    return SnapshotSchema(table.java.now.schema_json)


def _plan(_: Any, table: Any, snapshot_id: int) -> Sequence[Any]:
    if table.java.snapshot(snapshot_id) is None:
        raise GapError(f"table {table.name} has no snapshot {snapshot_id} any more: it has expired")
    return plan_files(table.java, snapshot_id, None)


def _read_part(reader: MemoryReader, part: SnapshotPart, _: Any, *, snapshot_id: int) -> list[Event]:
    java: JavaTable = reader.table.java
    paths = {task.path for task in part.tasks}

    def read() -> list[Event]:
        version = java.now.snapshots[snapshot_id]
        return [
            Event("r", row["id"], row["n"]) for file, _, row in java.server.live_rows(version) if file.path in paths
        ]

    return _from_store(java, f"read part {part.number}", read)


def _read_changes(reader: MemoryReader, snapshot_id: int, _: Any) -> list[Event]:
    java: JavaTable = reader.table.java
    version = java.now.snapshots.get(snapshot_id)
    if version is None or (version.parent is not None and version.parent not in java.now.snapshots):
        raise GapError(f"snapshot {snapshot_id}, or the one before it, has expired")
    before = java.now.snapshots[version.parent] if version.parent is not None else None

    def read() -> list[Event]:
        one, other = (
            {} if side is None else {row["id"]: row["n"] for _, _, row in java.server.live_rows(side)}
            for side in (before, version)
        )
        return compare(one, other)

    return _from_store(java, f"compare snapshot {snapshot_id}", read)


def compare(before: Values, after: Values) -> list[Event]:
    """The changes between two states of the rows, by key."""
    gone = [Event("d", key, None) for key in sorted(before.keys() - after.keys())]
    return gone + [
        Event("c" if key not in before else "u", key, n) for key, n in sorted(after.items()) if before.get(key) != n
    ]


def _from_store(java: JavaTable, what: str, read: Callable[[], list[Event]]) -> list[Event]:
    try:
        return java.calls.call(what, read, store_away)
    except KeyError as gone:
        raise FatalError(f"table {java.now.name}: file {gone} is gone") from gone


@contextmanager
def reads_in_memory() -> Iterator[None]:
    """Have rows read here. A part is of the snapshot whose plan it is of."""
    planned: dict[int, int] = {}

    def plan_parts(spark: Any, table: Any, snapshot_id: int, part_bytes: int) -> tuple[SnapshotPart, ...]:
        made = whole(spark, table, snapshot_id, part_bytes)
        planned.update({id(part): snapshot_id for part in made})
        kept.extend(made)
        return made

    def read_part(reader: MemoryReader, part: SnapshotPart, key: Any) -> list[Event]:
        return _read_part(reader, part, key, snapshot_id=planned[id(part)])

    whole, kept = initial_snapshot.plan_parts, list[SnapshotPart]()
    with ExitStack() as until:
        for place, name, value in (
            (initial_snapshot, "plan_files", _plan),
            (initial_snapshot, "plan_parts", plan_parts),
            (table_capture, "read_part", read_part),
            (table_capture, "read_changes", _read_changes),
            (table_capture, "TableReader", MemoryReader),
            (table_access, "load_snapshot_schema", _find_schema),
            (table_access, "load_current_schema", lambda _, table: SnapshotSchema(table.java.now.schema_json)),
            (table_access, "release_reads", lambda *_: None),
            (table_access, "log_warnings", lambda *_: None),
        ):
            until.enter_context(patch.object(place, name, value))
        yield
