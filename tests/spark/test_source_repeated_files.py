"""Tables that list one data file more than once -> the changes of every copy of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from pyspark.sql import SparkSession

from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.java import iterate
from connector.iceberg.read.delete_hits import find_hit_files
from connector.iceberg.read.scan_planning import plan_files
from connector.settings.source.settings import load_source
from connector.source.capture_reports import CaptureReports
from connector.source.changes.rewrites import file_diff
from connector.source.changes.row_key import RowKey
from connector.source.on_demand import SnapshotOnDemand
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.signal import SnapshotKind
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue
from connector.source.snapshots.table_offset import TableOffset
from connector.source.table_access import TableAccess
from tests.harness.tiers import tiered
from tests.histories.source_tables import CATALOG, Event, Kind, Subject, use_catalog
from tests.runs.publishers import InMemoryPublisher

pytestmark = pytest.mark.spark
MOR = "merge-on-read"
Add = Callable[[Subject], object]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("repeated"))
    return spark


@pytest.fixture(scope="module")
def add(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Add:
    """add(subject) adds a file of four rows to its table, the same each time and for all tables."""
    place = tmp_path_factory.mktemp("added") / "files"
    session.sql("SELECT id, concat('v', id) v FROM range(4)").coalesce(1).write.parquet(str(place))

    def run(subject: Subject) -> object:
        source = f"source_table => '`parquet`.`{place}`', check_duplicate_files => false"
        return session.sql(f"CALL {CATALOG}.system.add_files(table => '{subject.short}', {source})").collect()

    return run


def _list_twice(
    session: SparkSession, add: Add, version: int, mode: str = MOR, *, identifiers: bool = False
) -> Subject:
    """Make a table that lists the file twice."""
    subject = _empty(session, version, mode, identifiers=identifiers)
    add(subject)
    add(subject)
    return subject


def _list_again(session: SparkSession, add: Add) -> Subject:
    """Make a table that lists the file once more behind a delete in it."""
    subject = _empty(session, 2, MOR, identifiers=False)
    add(subject)
    subject.sql("DELETE FROM {t} WHERE id = 1")
    add(subject)
    return subject


def _empty(session: SparkSession, version: int, mode: str, *, identifiers: bool) -> Subject:
    kind = Kind(version, mode, partitioned=False, identifiers=identifiers)
    return Subject(session, kind, f"id bigint{' NOT NULL' * identifiers}, v string")


def _check_update(subject: Subject) -> None:
    """Update a row: the events are of what the table has no more, and of what it has now."""
    subject.follow(RowKey())
    before = _count_rows(subject)
    subject.sql("UPDATE {t} SET v = 'n' WHERE id = 1")
    after = _count_rows(subject)
    (updated,) = subject.follow(RowKey())
    assert Counter(event[1] for event in updated if event[0] == "d") == before - after
    assert Counter(event[2] for event in updated if event[0] == "c") == after - before


def _count_rows(subject: Subject) -> Counter[tuple[Any, ...]]:
    rows = subject.spark.table(f"{CATALOG}.{subject.short}").collect()
    return Counter(tuple(row) for row in rows)


def _count_operations(events: Sequence[Event]) -> dict[str, int]:
    kinds = [event[0] for event in events]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_deletes_in_a_file_that_is_listed_twice(session: SparkSession, add: Add, version: int) -> None:
    """A delete in a data file that a table lists twice takes away both rows, each with its own event."""
    subject = _list_twice(session, add, version)
    _check_update(subject)
    subject.sql("DELETE FROM {t} WHERE id = 2")
    (deleted,) = subject.follow(RowKey())
    assert _count_operations(deleted) == {"d": 2}


def test_a_file_that_is_listed_again_after_a_delete(session: SparkSession, add: Add) -> None:
    """A delete from before a file was listed again is not one of the later copy, whose rows go with the next delete."""
    subject = _list_again(session, add)
    subject.follow(RowKey())
    subject.sql("DELETE FROM {t} WHERE id = 1")
    (deleted,) = subject.follow(RowKey())
    assert [event[:2] for event in deleted] == [("d", (1, "v1"))]
    subject.sql("DELETE FROM {t} WHERE id = 2")
    (deleted,) = subject.follow(RowKey())
    assert _count_operations(deleted) == {"d": 2}


def _lift_deletes(subject: Subject) -> None:
    """Take the deletes of the first file away, whose rows live again."""
    table = subject.table()
    deletes = [file for task in plan_files(subject.spark, table, table.snapshot_id or 0) for file in _deletes(task)]
    table.java.newRowDelta().removeDeletes(deletes[0]).commit()


def _deletes(task: Any) -> list[Any]:
    return list(iterate(task.java().deletes()))


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_rows_that_live_again_in_a_file_that_is_listed_twice(session: SparkSession, add: Add, version: int) -> None:
    """A delete that is taken away gives back the row of every copy that it had hit."""
    subject = _list_twice(session, add, version)
    subject.sql("DELETE FROM {t} WHERE id = 1")
    subject.follow(RowKey())
    _lift_deletes(subject)
    (back,) = subject.follow(RowKey())
    assert [event[:3] for event in back] == [("c", None, (1, "v1"))] * 2


def test_rows_that_live_again_in_the_older_copy_only(session: SparkSession, add: Add) -> None:
    """A delete that is taken away gives no row back to a copy that was listed after it."""
    subject = _list_again(session, add)
    subject.follow(RowKey())
    _lift_deletes(subject)
    (back,) = subject.follow(RowKey())
    assert [event[:3] for event in back] == [("c", None, (1, "v1"))]


@pytest.mark.parametrize("walked", tiered([True, False], [True]))
def test_a_file_that_is_listed_twice_is_rewritten(
    session: SparkSession, add: Add, walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are compared with those of the files in their place, however many rows there are: of as many copies as
    Spark's statement took out, which forgets one of two.
    """
    monkeypatch.setattr(file_diff, "MIN_REWRITTEN_ROWS", 0 if walked else 1 << 60)
    _check_update(_list_twice(session, add, 2, "copy-on-write"))


def test_files_that_deletes_would_hit(session: SparkSession, add: Add) -> None:
    """Of a file that is listed twice both copies are told that have rows which a delete would take."""
    subject = _list_twice(session, add, 2, identifiers=True)
    before = subject.table().snapshot_id or 0
    subject.upsert([], deleted=[{"id": 1}])
    table = subject.table()
    struck = plan_files(session, table, table.snapshot_id or 0)
    found = find_hit_files(table, before, {struck[0].path: _deletes(struck[0])})
    assert [task.path for task in found] == [struck[0].path] * 2


@define
class _Offsets:
    """Offsets in memory."""

    queue: SnapshotQueue
    stored: TableOffset

    def put_queue(self, queue: SnapshotQueue, offsets: Mapping[str, TableOffset] | None = None) -> None:
        self.queue = queue
        self.stored = next(iter((offsets or {}).values()), self.stored)


@define
class _Reports:
    """Keeps what is told of snapshots."""

    told: list[Any] = field(factory=list)

    def on_snapshot(self, report: Any) -> None:
        self.told.append(report)


@pytest.mark.parametrize("rows_per_chunk", tiered([1, 1000], [1]))
@pytest.mark.parametrize("kind", list(SnapshotKind))
def test_snapshots_on_demand_have_every_copy(
    session: SparkSession, add: Add, tmp_path: Path, kind: SnapshotKind, rows_per_chunk: int
) -> None:
    """A snapshot that a signal asked for reads each copy of a row that lives, less the deletes that hit that copy."""
    subject = _list_again(session, add)
    file = tmp_path / "s.properties"
    file.write_text(
        "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"
        f"incremental.snapshot.chunk.size={rows_per_chunk}\nmessage.key.columns=.*:id\n"
    )
    table, publisher, reports = subject.table(), InMemoryPublisher(), _Reports()
    snapshot = QueuedSnapshot("s", table.name, kind)
    offset = TableOffset(SnapshotOffset(table.uuid, table.snapshot_id))
    offsets: Any = _Offsets(SnapshotQueue((snapshot,)), offset)
    snapshots = SnapshotHistory(session, table)
    access = TableAccess(session, load_source([file], environ={}), table, snapshots, offsets, publisher)
    reader = SnapshotOnDemand(access, CaptureReports(table.name, (), [reports]))
    while (due := reader.due(offsets.stored, idle=True, had_turn=False)) is not None:
        reader.step(due, offsets.stored, table.snapshot_id)
    rows = Counter(row.after.id for row in publisher.changes[table.name])
    assert rows == {0: 2, 1: 1, 2: 2, 3: 2}
    assert reports.told[-1].stage == "COMPLETED"
