"""A position in a table's history -> what a source reads next there, or why it cannot."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.source.changes.initial_snapshot import plan_parts, read_part
from connector.source.changes.read_errors import translate_read_errors
from connector.source.changes.row_key import RowKey
from connector.source.snapshots.next_step import Fail, Idle, SnapshotMode, SnapshotOffset, TableHead, decide_next_step
from connector.source.snapshots.table_history import read_head, read_history
from tests.harness.tiers import tiered
from tests.histories.source_tables import COLUMNS, COW, MOR, Kind, Subject, changes_of, filled, reader_of, use_catalog

pytestmark = pytest.mark.spark
V2_COW_KEYED = Kind(2, COW, partitioned=False, identifiers=True)
V2_MOR = Kind(2, MOR, partitioned=False, identifiers=True)
V3_MOR = Kind(3, MOR, partitioned=False, identifiers=True)


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("reads"))
    return spark


@pytest.mark.parametrize("kind", tiered([V2_MOR, V3_MOR], [V3_MOR], str))
def test_initial_read_in_parts(session: SparkSession, kind: Kind) -> None:
    """The full read gives the live rows of the pinned snapshot, in parts that are the same each time."""
    subject = Subject(session, kind, COLUMNS)
    for start in range(3):
        subject.sql(f"INSERT INTO {{t}} SELECT id * 3 + {start}, 'a', 'x' FROM range(4)")
    subject.sql("DELETE FROM {t} WHERE id IN (0, 4)")
    table = subject.table()
    pinned = table.snapshot_id or 0
    subject.sql("DELETE FROM {t} WHERE id > 5")
    found = plan_parts(session, subject.table(), pinned, part_bytes=1500)
    assert len(found) > 1
    assert [[t.path for t in p.tasks] for p in found] == [
        [t.path for t in p.tasks] for p in plan_parts(session, table, pinned, part_bytes=1500)
    ]
    reader = reader_of(session, subject.table(), pinned)
    read = [row for part in found for row in read_part(reader, part, RowKey()).collect()]
    assert sorted(row.after.id for row in read) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert {(row.op, row.before) for row in read} == {("r", None)}


def test_v1_table_is_refused(session: SparkSession) -> None:
    """A v1 table is an error that tells how to upgrade."""
    subject = Subject(session, Kind(1, COW, False, False), COLUMNS)
    subject.sql("INSERT INTO {t} VALUES (1, 'a', 'x')")
    table = subject.table()
    with pytest.raises(FatalError, match=r"format version 1.*'format-version'='2'"):
        changes_of(session, table, table.snapshot_id or 0, RowKey())
    with pytest.raises(FatalError, match="format version 1"):
        read_head(table, SnapshotHistory(session, table))


def test_rollback_and_expiry_stop(session: SparkSession) -> None:
    """A rolled back or expired position stops with table and snapshots; reading an expired snapshot is a gap."""
    subject = filled(session, V2_COW_KEYED, "(1,'a','x')")
    first = subject.table().snapshot_id
    subject.sql("INSERT INTO {t} VALUES (2,'a','x')")
    subject.follow()
    lost = subject.position.snapshot_id
    subject.call("rollback_to_snapshot", f", snapshot_id => {first}")
    assert subject.next() is None
    table = subject.table()
    snapshots = SnapshotHistory(session, table)
    now = read_head(table, snapshots)
    stop = decide_next_step(subject.name, subject.position, SnapshotMode.INITIAL, now, lambda: read_history(snapshots))
    assert isinstance(stop, Fail) and str(lost) in stop.reason and "rolled back" in stop.reason
    subject.call("expire_snapshots", ", older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    with pytest.raises(GapError, match=str(lost)):
        changes_of(session, subject.table(), lost or 0, RowKey())


@pytest.mark.parametrize("which", ["data", "delete"])
def test_missing_file_is_named(session: SparkSession, which: str) -> None:
    """A data or delete file that is gone is an error with table, snapshot and file."""
    subject = filled(session, V2_MOR, "(1,'a','x'), (2,'a','y')")
    subject.sql("DELETE FROM {t} WHERE id = 2")
    table = subject.table()
    suffix = "data_file" if which == "data" else "delete_file"
    path = session.table(f"{subject.name}.{suffix}s").collect()[0].file_path
    Path(path).unlink()
    Path(path).with_name(f".{Path(path).name}.crc").unlink(missing_ok=True)
    with pytest.raises(FatalError) as caught, translate_read_errors(subject.name, table.snapshot_id or 0):
        changes_of(session, table, table.snapshot_id or 0, RowKey()).collect()
    for part in (subject.name, str(table.snapshot_id), Path(path).name):
        assert part in str(caught.value)


def test_broken_file_is_named(session: SparkSession) -> None:
    """A data file that is no Parquet is an error with table, snapshot and file."""
    subject = filled(session, V2_COW_KEYED, "(1,'a','x')")
    subject.sql("INSERT INTO {t} VALUES (2,'a','x')")
    table = subject.table()
    snapshot_id = table.snapshot_id or 0
    with pytest.raises(FatalError) as caught, translate_read_errors(subject.name, snapshot_id):
        frame = changes_of(session, table, snapshot_id, RowKey())
        for file in session.table(f"{subject.name}.data_files").collect():
            Path(file.file_path).write_bytes(b"x" * file.file_size_in_bytes)
            Path(file.file_path).with_name(f".{Path(file.file_path).name}.crc").unlink(missing_ok=True)
        frame.collect()
    assert subject.name in str(caught.value) and ".parquet" in str(caught.value)


def test_branch_is_followed(session: SparkSession) -> None:
    """A branch has a head of its own; one that is not there is an error."""
    subject = filled(session, V2_COW_KEYED, "(1,'a','x')")
    table = subject.table()
    main = table.snapshot_id
    table.java.manageSnapshots().createBranch("audit", main).commit()
    subject.spark.sql(f"INSERT INTO {subject.name}.branch_audit VALUES (2,'a','x')")
    branch = SnapshotHistory(session, subject.table(), "audit")
    assert branch.poll() not in (None, main)
    assert [found["snapshot-id"] for found in branch.ancestors()] == [main, branch.newest()]
    assert SnapshotHistory(session, subject.table()).poll() == main
    with pytest.raises(FatalError, match="no branch other"):
        SnapshotHistory(session, subject.table(), "other").poll()


def test_idle_poll_of_a_long_history(session: SparkSession) -> None:
    """With 10,000 snapshots in history a poll that finds nothing new does not look at them."""
    subject = filled(session, V2_COW_KEYED, "(1,'a','x')")
    folder = Path(str(subject.table().java.location())) / "metadata"
    newest = max(int(file.name[1:].split(".")[0]) for file in folder.glob("v*.metadata.json"))
    document = json.loads((folder / f"v{newest}.metadata.json").read_text())
    (real,) = document["snapshots"]
    parents = [{**real, "snapshot-id": n, "parent-snapshot-id": n - 1 or None} for n in range(1, 10_000)]
    parents[0].pop("parent-snapshot-id")
    document["snapshots"] = [*parents, {**real, "parent-snapshot-id": 9_999}]
    (folder / f"v{newest + 1}.metadata.json").write_text(json.dumps(document))
    (folder / "version-hint.text").write_text(str(newest + 1))
    for checksum in folder.glob(".*.crc"):
        checksum.unlink()
    table = subject.table()
    snapshots = SnapshotHistory(session, table)
    position = SnapshotOffset(table.uuid, read_head(table, snapshots).snapshot_id)
    unread = partial(pytest.fail, "the history was read")
    assert isinstance(
        decide_next_step(subject.name, position, SnapshotMode.INITIAL, read_head(table, snapshots), unread), Idle
    )
    assert len(read_history(snapshots).ancestors) == 10_000


def test_position_of_another_table(session: SparkSession) -> None:
    """A table that was dropped and made again is another table."""
    subject = filled(session, V2_COW_KEYED, "(1,'a','x')")
    old = subject.position
    subject.sql("DROP TABLE {t}")
    subject.sql(f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg")
    table = subject.table()
    snapshots = SnapshotHistory(session, table)
    stop = decide_next_step(
        subject.name, old, SnapshotMode.INITIAL, read_head(table, snapshots), lambda: read_history(snapshots)
    )
    assert isinstance(stop, Fail) and "replaced" in stop.reason
    assert SnapshotOffset(table.uuid, None) != old and isinstance(TableHead(table.uuid, None), TableHead)
