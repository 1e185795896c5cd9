"""Snapshots that combine all kinds of file changes, made through Iceberg's own API -> exactly the rows that differ.

ICEBRIDGE_HISTORIES (1) is how many histories each test runs, ICEBRIDGE_STEPS (4) how long each is, ICEBRIDGE_SEED (0)
where they start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import Mock

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.errors import ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import CREATED_BY, is_icebridge_commit
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.truncate import truncate_table
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN, SEQUENCE_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask, plan_files
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.iceberg.state.deleted_keys_schema import DELETED_KEYS_COLUMNS
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.state.offset_rows import SINK, SOURCE, OffsetRows
from connector.iceberg.state.schema_history_table import SchemaHistoryTable
from connector.iceberg.write.position_deletes import PositionDeleteWriter
from connector.iceberg.write.row_lineage import with_lineage
from connector.iceberg.write.table_writer import TableWriter
from connector.settings.iceberg.catalog import CatalogSettings
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey
from connector.source.signals.table_channel import TableChannel
from connector.source.snapshots.signal import SignalText
from tests.harness.tiers import tiered
from tests.histories.source_tables import CATALOG, Event, Kind, Subject, plain, use_catalog

pytestmark = pytest.mark.spark
HISTORIES = int(os.environ.get("ICEBRIDGE_HISTORIES", "1"))
SEED = int(os.environ.get("ICEBRIDGE_SEED", "0"))
STEPS = int(os.environ.get("ICEBRIDGE_STEPS", "4"))
COLUMNS = "id bigint NOT NULL, p string, v string"
NAMES = ("id", "p", "v")
MOR = "merge-on-read"
KINDS = [
    Kind(version, MOR, partitioned, identifiers)
    for version in (2, 3)
    for partitioned, identifiers in ((False, True), (True, False))
]
BY_ROW = RowKey(KeyKind.IDENTIFIERS, ("id",), RowIdentity.ROW_ID)


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("commits"))
    return spark


@pytest.mark.parametrize("mode", ["copy-on-write", MOR])
def test_signals_that_are_written_again_are_not_new(session: SparkSession, mode: str) -> None:
    """Deleting one signal of a table rewrites the others, which were followed before; an insert is a signal once."""
    subject = Subject(session, Kind(2, mode, False, False), "id string, type string, data string")
    catalog = Mock(find=lambda *_: subject.table())
    channel = TableChannel(session, catalog, subject.short)
    position = channel.read(None).position
    subject.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES ('a', 'log', '{}'), ('b', 'log', '{}') AS v")
    subject.sql("DELETE FROM {t} WHERE id = 'a'")
    subject.sql("INSERT INTO {t} VALUES ('c', 'log', '{}')")
    found = []
    while (received := channel.read(position)).position != position:
        found += [signal.id for signal in received.signals if isinstance(signal, SignalText)]
        position = received.position
    assert found == ["a", "b", "c"]


@attrs.define
class Row:
    """A row on its way; `kept` keeps its sequence number too, as a row that was not changed does."""

    id: int
    p: str
    v: str
    row_id: int | None = None
    sequence: int | None = None
    place: tuple[str, int] = ("", 0)

    def changed(self, **columns: Any) -> Row:
        """The row with other values: it keeps its id and loses its sequence number."""
        return attrs.evolve(self, sequence=None, **columns)


class Commit:
    """One snapshot on its way: what goes in and out of a table, all at once."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.table = subject, subject.table()
        self.layout, self.v3 = self.table.layout(), self.table.format_version > 2
        newest = self.table.snapshot_id
        self.tasks = (
            [] if newest is None else sorted(plan_files(subject.spark, self.table, newest), key=lambda t: t.path)
        )
        self.delta = self.table.java.newRowDelta()
        if newest is not None:
            self.delta.validateFromSnapshot(newest)

    def rows(self, task: FileScanTask) -> list[Row]:
        """The rows of a file that live."""
        schema = SnapshotSchema(self.layout.schema_json)
        found = TableReader(self.subject.spark, self.table, schema).read_live_rows([task], lineage=self.v3).collect()
        release_reads(self.subject.spark, self.table)
        lineage = [(row[ROW_ID_COLUMN], row[SEQUENCE_COLUMN]) if self.v3 else (None, None) for row in found]
        return [
            Row(r.c0, r.c1, r.c2, *ids, (r[FILE_COLUMN], r[POSITION_COLUMN]))
            for r, ids in zip(found, lineage, strict=True)
        ]

    def add(self, rows: Sequence[Row], *, lineage: bool = True) -> None:
        """Write rows, with the ids that they have."""
        layout = with_lineage(self.layout) if self.v3 and lineage else self.layout
        values = [[row.id for row in rows], [row.p for row in rows], [row.v for row in rows]]
        values += [[row.row_id for row in rows], [row.sequence for row in rows]]
        arrays = [pa.array(v, f.type) for v, f in zip(values, layout.columns, strict=False)]
        writer = TableWriter(layout, "test")
        if rows:
            writer.write_rows(pa.RecordBatch.from_arrays(arrays, schema=layout.columns))
        self._take(writer.close())

    def remove(self, task: FileScanTask) -> None:
        """Take a file out."""
        self.delta.removeRows(task.java().file())

    def strike(self, task: FileScanTask, rows: Sequence[Row], *, merged: bool = True) -> None:
        """Delete rows of a file by position; without `merged`, what was deleted by position before lives again."""
        place = task.place if merged else attrs.evolve(task.place, deletes=())
        self.lift(task)
        writer = PositionDeleteWriter(self.layout, "test", {task.path: place}, as_vectors=self.v3)
        at = sorted(row.place[1] for row in rows)
        self._take(writer.take(pa.array([task.path] * len(at)), pa.array(at, pa.int64())))
        self._take(writer.close())

    def lift(self, task: FileScanTask) -> None:
        """Take the deletes by position away that are about this file alone."""
        for file in task.java().deletes():
            if file.referencedDataFile() is not None:
                self.delta.removeDeletes(file)

    def delete_by_id(self, ids: Sequence[int]) -> None:
        """Delete rows by an equality delete, wherever they are."""
        layout = attrs.evolve(self.layout, id_columns=("id",))
        writer = TableWriter(layout, "test")
        writer.write_equality_deletes(
            pa.RecordBatch.from_pydict({"id": list(ids)}, pa.schema([layout.columns.field("id")]))
        )
        self._take(writer.close())

    def _take(self, descriptions: Any) -> None:
        for description in descriptions:
            [file] = self.table.content_files([description])
            if not description.is_data:
                self.delta.addDeletes(file)
            else:
                self.delta.addRows(file)

    def commit(self) -> None:
        self.delta.commit()


class History:
    """Random commits; each leaves every file with at most one change."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.random, self.next = subject, Random(seed), 0

    def step(self) -> list[str]:
        """Combine several changes in one commit, and tell which."""
        commit, told = Commit(self.subject), []
        ways = [self.rewrite, self.rewrite, self.touch, self.touch, self.lift, self.remove]
        self.random.shuffle(commit.tasks)
        for task, way in zip(commit.tasks, self.random.sample(ways, len(ways)), strict=False):
            told.append(way.__name__)
            way(commit, task)
        if not commit.tasks or self.random.random() < 0.7:
            told.append("add")
            commit.add(self._new(self.random.randint(4, 8)), lineage=False)
        if commit.tasks and self.random.random() < 0.4:
            told.append("delete by id")
            commit.delete_by_id([self.random.randrange(self.next + 1) for _ in range(3)])
        commit.commit()
        return told

    def rewrite(self, commit: Commit, task: FileScanTask) -> None:
        """Some rows go, some change, some change their key; the others stay what they are."""
        rows = commit.rows(task)
        commit.remove(task)
        kept = [row for row in rows if self.random.random() > 0.2]
        made = [self._changed(row) if self.random.random() < 0.3 else row for row in kept]
        commit.add(made, lineage=self.random.random() < 0.8)

    def touch(self, commit: Commit, task: FileScanTask) -> None:
        """Some rows go by position, and some of those come again in another file, changed or as they were."""
        rows = [row for row in commit.rows(task) if self.random.random() < 0.5]
        if rows:
            commit.strike(task, rows)
            commit.add([self.random.choice((row, self._changed(row))) for row in rows if self.random.random() < 0.5])

    def lift(self, commit: Commit, task: FileScanTask) -> None:
        """Rows that were deleted by position live again, all of them or some."""
        rows = commit.rows(task)[:1] if self.random.random() < 0.5 else []
        if rows:
            commit.strike(task, rows, merged=False)
        else:
            commit.lift(task)

    def remove(self, commit: Commit, task: FileScanTask) -> None:
        """A file goes."""
        commit.remove(task)

    def _changed(self, row: Row) -> Row:
        if self.random.random() < 0.3:
            self.next += 1
            return row.changed(id=self.next, p=self.random.choice("ab"))
        return row.changed(v=f"{row.v[:1]}{self.random.randrange(9)}")

    def _new(self, count: int) -> list[Row]:
        self.next += count
        return [Row(self.next - n, self.random.choice("ab"), self.random.choice("xyz")) for n in range(count)]


def _keys(kind: Kind) -> RowKey | None:
    return BY_ROW if kind.identifiers and kind.version > 2 else None


@pytest.mark.parametrize("kind", tiered(KINDS, [], str))
def test_any_combination_in_one_commit_is_followed(session: SparkSession, kind: Kind) -> None:
    """Whatever a commit removes, adds, deletes in and restores at once, its changes lead from one state to the next;
    rows that are known by their ids keep them."""
    for number in range(HISTORIES):
        subject = Subject(session, kind, COLUMNS)
        subject.delete_spec()
        history = History(subject, SEED + number)
        by_id: dict[int, Any] = {}
        told: list[Any] = []
        for _ in range(2 + STEPS):
            told.append(history.step())
            try:
                for events in subject.follow(_keys(kind)):
                    _number(by_id, events)
            except AssertionError as error:
                raise AssertionError(f"seed {SEED + number}: {told}") from error
            if kind.version > 2 and not kind.identifiers:
                assert by_id == _numbered(subject), f"seed {SEED + number}: {told}"


def _number(by_id: dict[int, Any], events: Sequence[Event]) -> None:
    """Follow rows by their ids."""
    for op, _, after, row_id in sorted(events, key=lambda event: event[0] != "d"):
        if row_id is None:
            continue
        if op == "d":
            del by_id[row_id]
        else:
            by_id[row_id] = after


def _numbered(subject: Subject) -> dict[int, Any]:
    found = subject.spark.sql(f"SELECT _row_id, id, p, v FROM {subject.name}").collect()
    return {row[0]: plain(row[1:]) for row in found}


def _filled(session: SparkSession, kind: Kind) -> tuple[Subject, Table]:
    """A table of two files of ten rows each."""
    subject = Subject(session, kind, COLUMNS)
    for start in (0, 100):
        commit = Commit(subject)
        commit.add([Row(start + n, "a", "x") for n in range(10)], lineage=False)
        commit.commit()
    subject.follow(_keys(kind))
    return subject, subject.table()


def _of(commit: Commit, first: int) -> tuple[FileScanTask, list[Row]]:
    """The file whose rows begin with this id."""
    pairs = [(task, commit.rows(task)) for task in commit.tasks]
    return next((task, rows) for task, rows in pairs if min(row.id for row in rows) == first)


@pytest.mark.parametrize("identifiers", tiered([True, False], [True]))
def test_a_delete_beside_an_update_in_a_touched_file(session: SparkSession, identifiers: bool) -> None:
    """A row that a rewrite left out is a delete, though another file's row comes into the added ones for it."""
    kind = Kind(3, MOR, partitioned=False, identifiers=identifiers)
    subject, _ = _filled(session, kind)
    commit = Commit(subject)
    (low, low_rows), (high, high_rows) = _of(commit, 0), _of(commit, 100)
    commit.remove(low)
    commit.add([row for row in low_rows if row.id != 7])
    commit.strike(high, high_rows[:2])
    commit.add([high_rows[0].changed(v="new"), high_rows[1]])
    commit.commit()
    (events,) = subject.follow(_keys(kind))
    assert sorted((op, (after or before)[0]) for op, before, after, _ in events) == [("d", 7), ("u", 100)]


def test_a_delete_beside_a_changed_key_from_another_file(session: SparkSession) -> None:
    """The same where the row came from a removed file that holds no key of the added ones."""
    kind = Kind(3, MOR, partitioned=False, identifiers=True)
    subject, _ = _filled(session, kind)
    commit = Commit(subject)
    (low, low_rows), (high, high_rows) = _of(commit, 0), _of(commit, 100)
    commit.remove(low)
    commit.remove(high)
    commit.add([row for row in low_rows if row.id != 7])
    commit.add([high_rows[0].changed(id=5_000)])
    commit.add([high_rows[1].changed(id=8)])
    commit.commit()
    (events,) = subject.follow(BY_ROW)
    gone = sorted(before[0] for op, before, after, _ in events if op == "d")
    assert gone == [7, *range(102, 110)]
    assert sorted((before[0], after[0]) for op, before, after, _ in events if op == "u") == [(100, 5_000), (101, 8)]


def test_truncates_tell_who_made_them(session: SparkSession) -> None:
    """The commits that empty a table, of whole files or of rows among later ones, have the connector's name."""
    subject = Subject(session, Kind(2, "copy-on-write", partitioned=False, identifiers=False), "id bigint, ts bigint")
    subject.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, id FROM range(10)")
    table = Table(session, subject.short, subject.table().java, {})
    for until, left in ((("ts", 4), 5), (None, 0)):
        truncate_table(session, table, until, name="a sink")
        assert session.table(subject.name).count() == left
        summary = dict(table.java.currentSnapshot().summary())
        assert is_icebridge_commit(summary) and summary[CREATED_BY] == "a sink"
        assert KafkaOffsets.from_summary(summary, "a sink") is None


def test_commits_to_own_tables_tell_who_made_them(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that skips own commits passes over our own tables, and refuses to take a sink's name for its own."""
    monkeypatch.setattr("connector.iceberg.state.deleted_keys_table.MAX_SNAPSHOTS", 1)
    catalog = Catalog(session, CatalogSettings(CATALOG, {}, ("db",), {}))
    offsets = OffsetRows(catalog, "own_offsets", "a sink", SINK)
    offsets.reload()
    assert (offsets.by_table, offsets.is_stale(), catalog.load("own_offsets")) == ({}, False, None)
    stored = KafkaOffsets().json().decode()
    for _ in range(2):
        offsets.put(stored, {"t": stored})
    with pytest.raises(ConfigError, match="name: a sink is the name of another kind of connector than a source"):
        OffsetRows(catalog, "own_offsets", "a sink", SOURCE)
    deleted = DeletedKeysTable(session, catalog, "own_deleted", "a sink", timedelta(days=1))
    for old in (True, *[False] * 5):
        row = {"connector": "a sink", "table": "t", "key": "1", "date": 1, "noted_at": datetime.now(UTC)}
        if old:
            row["noted_at"] -= timedelta(days=9)
        writer = TableWriter(deleted.layout, "own")
        writer.write_rows(pa.RecordBatch.from_pylist([row], DELETED_KEYS_COLUMNS))
        deleted.add([*writer.close()])
    deleted.clean_up()
    SchemaHistoryTable(catalog, "own_schemas", "a sink").note(
        [found for found in [catalog.load("own_offsets")] if found]
    )
    for name, operations in {
        "own_offsets": ["append", "overwrite"],
        "own_deleted": [*["append"] * 6, "delete", "replace"],
        "own_schemas": ["append"],
    }.items():
        told = session.sql(f"SELECT operation, summary FROM {CATALOG}.db.{name}.snapshots ORDER BY committed_at")
        made = [(operation, summary) for operation, summary in told.collect()]
        assert [operation for operation, _ in made] == operations
        assert all(is_icebridge_commit(summary) and summary[CREATED_BY] == "a sink" for _, summary in made)
