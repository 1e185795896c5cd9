"""One table of a source, step by step, over a history in memory: what is published, stored and told, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from attrs import define, evolve, field

from connector.errors import FatalError, GapError, RetriableError
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME
from connector.runtime.monitoring.listeners import SnapshotReport
from connector.settings.source.settings import load_source
from connector.source import on_demand, table_access, table_capture
from connector.source.capture_reports import CaptureReports
from connector.source.changes import initial_snapshot
from connector.source.changes.initial_snapshot import SnapshotPart
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.notifications import additional_data
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.snapshot_info import MIN_STEP_NS
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue
from connector.source.snapshots.table_history import TableGoneError
from connector.source.snapshots.table_offset import TableOffset
from connector.source.table_access import TableAccess
from connector.source.table_capture import TableCapture
from serde.emit.row_schema import Primitive, RowField
from tests.runs.publishers import InMemoryPublisher
from tests.runs.sources import StepLog

Row = SimpleNamespace


@define
class History:
    """Snapshots of one branch, the newest last."""

    snapshots: list[dict[str, Any]] = field(factory=list)

    def add(self, snapshot_id: int, **summary: str) -> None:
        parent = {"parent-snapshot-id": self.snapshots[-1]["snapshot-id"]} if self.snapshots else {}
        when = {"timestamp-ms": 1_000 * snapshot_id, "sequence-number": snapshot_id}
        self.snapshots.append(
            {"snapshot-id": snapshot_id, **when, **parent, "summary": {"operation": "append", **summary}}
        )

    def poll(self) -> int | None:
        return self.snapshots[-1]["snapshot-id"] if self.snapshots else None

    def retained(self) -> dict[int, dict[str, Any]]:
        return {one["snapshot-id"]: one for one in self.snapshots}

    def ancestors(self) -> list[dict[str, Any]]:
        return list(self.snapshots)


@define
class Offsets:
    """Offsets in memory, every one that was stored."""

    stored: list[TableOffset] = field(factory=list)
    queue: SnapshotQueue = field(factory=SnapshotQueue)

    def of(self, _name: str) -> TableOffset | None:
        return self.stored[-1] if self.stored else None

    def put(self, _name: str, offset: TableOffset) -> None:
        self.stored.append(offset)

    def put_queue(self, queue: SnapshotQueue, offsets: Mapping[str, TableOffset] | None = None) -> None:
        self.queue = queue
        self.stored.extend((offsets or {}).values())


@define
class Stage:
    """A captured table, and all that there is to see of it."""

    capture: TableCapture
    history: History
    offsets: Offsets
    publisher: InMemoryPublisher
    steps: StepLog
    told: list[SnapshotReport]
    looked: list[int | None]

    def run(self) -> None:
        """Step until there is nothing to do."""
        while self.capture.step(pinned=False):
            pass

    @property
    def published(self) -> list[object]:
        """What was published of the table."""
        return [row.of for row in self.publisher.changes.get("db.t", [])]


def _frame(*rows: tuple[str, object]) -> Any:
    return SimpleNamespace(collect=lambda: [Row(op=op, of=of) for op, of in rows])


@pytest.fixture(name="stage")
def captured_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Stage:
    """A table without a stored offset; a snapshot's changes are one update, an initial snapshot has two parts."""
    file = tmp_path / "s.properties"
    file.write_text(
        "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"
        + getattr(request, "param", "")
    )
    schema = SimpleNamespace(document={"schema-id": 0}, iceberg=None)
    for name, answer in {
        "load_snapshot_schema": schema,
        "load_current_schema": schema,
        "choose_row_key": RowKey(),
        "describe_row": SimpleNamespace(members=()),
        "log_warnings": None,
        "release_reads": None,
    }.items():
        monkeypatch.setattr(table_access, name, lambda *_, answer=answer, **__: answer)
    parts = [SnapshotPart(number, (Mock(records=10 * (number + 1), size_bytes=1),)) for number in (0, 1)]
    monkeypatch.setattr(initial_snapshot, "plan_parts", lambda *_: tuple(parts))
    monkeypatch.setattr(table_capture, "TableReader", lambda *_: None)
    monkeypatch.setattr(table_capture, "read_part", lambda _, part, __: _frame(("r", part.number)))
    monkeypatch.setattr(
        table_capture, "read_changes", lambda _, snapshot_id, __: _frame(("u", f"changes {snapshot_id}"))
    )
    table: Any = Mock(uuid="u", format_version=2, has_row_ids=False)
    table.name = "db.t"
    history, offsets, publisher = History(), Offsets(), InMemoryPublisher()
    steps, told, looked = StepLog(), list[SnapshotReport](), list[int | None]()
    spark: Any = Mock()
    listener: Any = SimpleNamespace(on_snapshot=told.append)
    stored: Any = offsets
    snapshots: Any = history
    access = TableAccess(spark, load_source([file], environ={}), table, snapshots, stored, publisher)
    capture = TableCapture(access, CaptureReports("db.t", [steps], [listener]), lambda _, ms: looked.append(ms))
    return Stage(capture, history, offsets, publisher, steps, told, looked)


def test_a_table_is_read_in_parts_then_followed(stage: Stage) -> None:
    """The parts of the newest snapshot, each stored before the next, then the changes of each later one."""
    stage.history.add(1)
    stage.run()
    stage.history.add(2)
    stage.history.add(3)
    stage.run()
    assert stage.published == [0, 1, "changes 2", "changes 3"]
    assert [(one.kind, one.snapshot_id, one.part, one.parts) for one in stage.steps.steps] == [
        ("part read", 1, 1, 2),
        ("part read", 1, 2, 2),
        ("snapshot published", 2, 0, 0),
        ("snapshot published", 3, 0, 0),
    ]
    assert [dict(one.operations) for one in stage.steps.steps] == [{"r": 1}, {"r": 1}, {"u": 1}, {"u": 1}]
    read = [one.position.reading and one.position.reading.part for one in stage.offsets.stored]
    assert (read, stage.offsets.stored[-1].position.snapshot_id) == ([0, 1, None, None, None], 3)
    assert [one.stage for one in stage.told] == ["STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert [one.rows for one in stage.told] == [0, 10, 30, 30]
    assert stage.looked == [1_000, 1_000, None, 2_000, 3_000, None]


def test_a_table_whose_offset_was_reset_is_read_again_at_a_later_time(stage: Stage) -> None:
    """Its rows, and the changes after them, are dated behind what was published, though a writer's clock was ahead."""
    ahead_ns = 9_000_000_000
    stage.offsets.stored.append(TableOffset(SnapshotOffset("", None), ahead_ns))
    stage.history.add(1)
    stage.run()
    assert stage.published == [0, 1]
    (read,) = {one.ts_ns for one in stage.offsets.stored if one.position.snapshot_id == 1}
    stage.history.add(2)
    stage.run()
    assert read is not None and stage.offsets.stored[-1].ts_ns == read + MIN_STEP_NS == ahead_ns + 2 * MIN_STEP_NS
    assert stage.published == [0, 1, "changes 2"]


def test_a_key_that_changes_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, where identifier columns are set, say: consumers have the rows under another key."""
    warned = list[RowKey]()
    monkeypatch.setattr(table_access, "log_warnings", lambda _, key, __: warned.append(key))
    keys = [RowKey(KeyKind.ROW_ID), RowKey(KeyKind.IDENTIFIERS, ("id",))]
    with structlog.testing.capture_logs() as lines:
        for number, key in enumerate((keys[0], keys[0], keys[1], keys[1]), 1):
            monkeypatch.setattr(table_access, "choose_row_key", lambda *_, key=key, **__: key)
            stage.history.add(number)
            stage.run()
    told = [(line["before"], line["now"]) for line in lines if line["event"] == "events have another key from here on"]
    assert told == [(["row id"], ["identifier columns", "id"])]
    assert warned == keys


@pytest.mark.parametrize("stage", ["column.exclude.list=db.t.g,db.t.k\n"], indirect=True)
def test_columns_that_are_left_out_need_not_be_readable(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody wants is not read where it cannot be; a key is always wanted."""
    asked = list[set[str]]()

    def leave_out(names: set[str]) -> Any:
        asked.append(names)
        return schema

    schema = SimpleNamespace(document={"schema-id": 0}, iceberg=None, leave_out=leave_out)
    members = tuple(RowField(name, Primitive("long")) for name in ("g", "k", "n"))
    monkeypatch.setattr(table_access, "load_snapshot_schema", lambda *_: schema)
    monkeypatch.setattr(table_access, "describe_row", lambda _: SimpleNamespace(members=members))
    monkeypatch.setattr(table_access, "choose_row_key", lambda *_, **__: RowKey(KeyKind.CONFIGURED, ("k.id",)))
    stage.history.add(1)
    stage.run()
    assert asked and all(names == {"g"} for names in asked)


def test_a_read_that_is_given_up_is_told(stage: Stage) -> None:
    """A table that is stepped no more amid its initial snapshot tells that; one that is followed does not."""
    stage.history.add(1)
    assert stage.capture.step(pinned=False)
    stage.capture.abandon()
    assert [one.stage for one in stage.told] == ["STARTED", "IN_PROGRESS", "ABORTED"]
    stage.run()
    stage.capture.abandon()
    assert stage.told[-1].stage == "COMPLETED"


def test_each_chunk_of_a_snapshot_on_demand_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its notification says how many chunks are read, and how many there are, by Debezium's names."""
    stage.history.add(1)
    stage.run()
    stage.told.clear()
    monkeypatch.setattr(table_access, "choose_row_key", lambda *_, **__: RowKey(KeyKind.IDENTIFIERS))
    monkeypatch.setattr(on_demand, "tasks_by_entry", lambda *plans: [{id(one): one for one in plan} for plan in plans])
    monkeypatch.setattr(on_demand, "TableReader", lambda *_: None)
    monkeypatch.setattr(on_demand, "read_live", lambda *_: _frame(("r", "chunk")))
    monkeypatch.setattr(on_demand, "keep_rows", lambda rows, _: rows)
    stage.offsets.queue = SnapshotQueue((QueuedSnapshot("7", "db.t"),))
    stage.run()
    assert [one.stage for one in stage.told] == ["IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    first, *_ = (additional_data(one, "p") for one in stage.told)
    assert (first["last_processed_key"], first["maximum_key"], first["total_rows_scanned"]) == ("1", "2", "10")


@pytest.mark.parametrize(
    ("stage", "published"),
    [
        ("snapshot.mode=no_data\n", ["changes 2", "changes 3"]),
        ("snapshot.mode=no_data\niceberg.skip.own.commits=true\n", ["changes 3"]),
    ],
    indirect=["stage"],
    ids=["all", "of others"],
)
def test_commits_of_sinks_are_skipped_where_asked(stage: Stage, published: list[object]) -> None:
    """Such a snapshot is stored as passed, and nothing of it is published; of no initial snapshot that is told."""
    stage.history.add(1)
    stage.run()
    stage.history.add(2, **{CONNECTOR_NAME: "sink"})
    stage.history.add(3)
    stage.run()
    assert stage.published == published
    assert [one.stage for one in stage.told] == ["SKIPPED"]  # once, when the table is found
    assert stage.offsets.stored[-1].position.snapshot_id == 3


@pytest.mark.parametrize("skips", [True, False])
def test_updates_without_change_are_left_out_where_asked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, skips: bool
) -> None:
    """Changes pass the filter, by the published columns and those of the key; what is read in full does not."""
    access, asked = stage.capture.access, list[Any]()
    outgoing = evolve(access.settings.outgoing, skips_unchanged=skips)
    access.settings = evolve(access.settings, outgoing=outgoing)
    monkeypatch.setattr(table_access, "choose_row_key", lambda *_, **__: RowKey(KeyKind.IDENTIFIERS, ("id",)))

    def drop(_rows: object, *columns: object) -> Any:
        asked.append(columns)
        return _frame()

    monkeypatch.setattr(table_capture, "drop_unchanged", drop)
    stage.history.add(1)
    stage.run()
    stage.history.add(2)
    stage.run()
    assert stage.published == [0, 1, *([] if skips else ["changes 2"])]
    assert asked == [([], ("id",))] * skips


def _lose_history(stage: Stage) -> None:
    """Have a snapshot expire that comes after the one that was published, and before the newest."""
    stage.history.add(1)
    stage.run()
    stage.history.add(2)
    stage.history.add(3)
    stage.history.snapshots = stage.history.snapshots[2:]


def test_a_snapshot_that_is_gone_ends_the_table(stage: Stage) -> None:
    """History that expired before it was published is a gap, and the offset stays."""
    _lose_history(stage)
    stored = stage.offsets.stored[-1]
    with pytest.raises(GapError):
        stage.run()
    assert stage.offsets.stored[-1] == stored


def test_a_table_that_stopped_falls_behind(stage: Stage) -> None:
    """A table that a gap ended has a snapshot that waits, so that its lag grows, and is not told to be up to date."""
    _lose_history(stage)
    with pytest.raises(GapError):
        stage.run()
    assert stage.looked[-1] == 3_000


@pytest.mark.parametrize("gone", [True, False])
def test_a_dropped_table_is_told_from_other_failures(stage: Stage, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """What a catalog says when a table cannot be read means that it was dropped where the catalog has it no more."""
    table: Any = stage.capture.access.table
    table.is_gone = lambda uuid: gone and uuid == "u"
    monkeypatch.setattr(History, "poll", Mock(side_effect=FatalError("refreshing table db.t: refused")))
    with pytest.raises(FatalError, match=r"db\.t was dropped; .*when_needed" if gone else "refused") as told:
        stage.capture.step(pinned=False)
    assert isinstance(told.value, TableGoneError) == gone


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("stage", ["snapshot.mode=initial\n", "snapshot.mode=no_data\n"], indirect=True)
def test_a_table_that_is_dropped_while_its_files_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Its files go with it: what reading them says means that it was dropped, in a full read and in changes alike."""
    table: Any = stage.capture.access.table
    table.is_gone = lambda uuid: gone and uuid == "u"
    for read in ("read_part", "read_changes"):
        monkeypatch.setattr(table_capture, read, Mock(side_effect=FatalError("file a.parquet is gone")))
    stage.history.add(1)
    with pytest.raises(
        FatalError, match=r"db\.t was dropped; .*when_needed" if gone else r"a\.parquet is gone"
    ) as told:
        stage.run()
        stage.history.add(2)
        stage.run()
    assert isinstance(told.value, TableGoneError) == gone
    assert (stage.looked[-1] is None) == gone  # a table that is not there has no lag that grows


@pytest.mark.parametrize("stage", ["snapshot.mode=when_needed\ninclude.schema.changes=true\n"], indirect=True)
@pytest.mark.parametrize("empty", [True, False])
def test_the_schema_of_a_table_that_took_a_name_over_is_told(stage: Stage, empty: bool) -> None:
    """Every table counts its schemas from 0: the number that another one of its name had says nothing of this one."""
    stage.history.add(1)
    stage.run()
    table: Any = stage.capture.access.table
    table.uuid, stage.history.snapshots = "another", []
    if empty:
        stage.run()
    stage.history.add(2)
    stage.run()
    stage.history.add(3)
    stage.run()
    assert stage.publisher.schemas == [("db.t", 1, True), ("db.t", 2, True)]


@pytest.mark.parametrize("stage", ["include.schema.changes=true\n"], indirect=True)
def test_the_schema_of_a_table_without_rows_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose initial snapshot has no rows has its schema told once, before its first event."""
    monkeypatch.setattr(initial_snapshot, "plan_parts", lambda *_: ())
    stage.history.add(1)
    stage.run()
    stage.history.add(2)
    stage.run()
    assert stage.publisher.schemas == [("db.t", 1, True)]
    assert stage.published == ["changes 2"]


def _expire_while_reading(stage: Stage, monkeypatch: pytest.MonkeyPatch, *, kept: int) -> None:
    """Let one step fail as its files go, together with all snapshots but the newest ones."""
    table: Any = stage.capture.access.table
    table.is_gone = lambda _: False

    def read(*_: object) -> Any:
        stage.history.snapshots = stage.history.snapshots[-kept:]
        raise FatalError("file a.parquet is gone; restore it")

    with monkeypatch.context() as patched:
        for name in ("read_part", "read_changes"):
            patched.setattr(table_capture, name, read)
        with pytest.raises(RetriableError, match=r"db\.t: snapshot \d expired while it was read"):
            stage.capture.step(pinned=True)


@pytest.mark.parametrize(
    "stage", ["snapshot.mode=initial\n", "snapshot.mode=when_needed\n"], indirect=True, ids=["stops", "reads again"]
)
def test_a_snapshot_that_expires_while_it_is_read_in_full(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing are no files to restore: the next step tells the gap, or reads the newest snapshot in full."""
    stage.history.add(1)
    assert stage.capture.step(pinned=True)
    stage.history.add(2)
    _expire_while_reading(stage, monkeypatch, kept=1)
    if stage.capture.access.settings.capture.snapshot_mode == "initial":
        with pytest.raises(GapError, match="it expired while it was being read"):
            stage.run()
    else:
        stage.run()
        assert stage.published == [0, 0, 1]
        assert stage.offsets.stored[-1].position.snapshot_id == 2


@pytest.mark.parametrize("stage", ["snapshot.mode=no_data\n"], indirect=True)
@pytest.mark.parametrize("kept", [1, 2])
def test_a_snapshot_that_expires_while_its_changes_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The snapshot itself or the one before it is gone: the next step tells of the gap, and the offset stays."""
    stage.history.add(1)
    stage.run()
    stage.history.add(2)
    stage.history.add(3)
    stage.capture._head = None
    _expire_while_reading(stage, monkeypatch, kept=kept)
    with pytest.raises(GapError, match="it has expired"):
        stage.run()
    assert stage.offsets.stored[-1].position.snapshot_id == 1
