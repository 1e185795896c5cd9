"""Maintenance of others beside a sink of equality deletes -> deleted rows stay deleted, with Iceberg 1.12.

Each hazard is shown first, as Iceberg leaves it, and then what the guard makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from pyspark.sql import SparkSession

from connector.errors import CommitRefused, CommitUnknown, GapError
from connector.iceberg.commit.settlement import _SettlingOperations
from connector.iceberg.guard.delete_guard import DeleteGuard
from connector.maintenance.conversion.conversion import convert_deletes
from connector.maintenance.lease import LeaseTable
from connector.maintenance.maintainer import Maintainer
from connector.maintenance.tasks import CONVERT, REWRITE
from connector.settings import load
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import crossed, tiered
from tests.histories.maintained import CONNECTOR, MaintainedCatalog, MaintainedTable
from tests.histories.workshop import AFTER, BEFORE, OFFSETS, cut_commits

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
VERSIONS = pytest.mark.parametrize("version", tiered([2, 3], [3]))
BY_P = [PartitionTerm("p", "identity")]
GUARD = DeleteGuard(CONNECTOR)
FRESH = {"use-starting-sequence-number": "false"}


@pytest.fixture(scope="module")
def maintained(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MaintainedCatalog:
    """A catalog of its own."""
    return MaintainedCatalog.open(spark, "foreign_maintenance", tmp_path_factory.mktemp("foreign_maintenance"))


def _filled(
    maintained: MaintainedCatalog, name: str, version: int, by: list[PartitionTerm] | None = None
) -> MaintainedTable:
    """Six rows, of two partitions, in one file for each."""
    table = maintained.make(name, version=version, by=by or [])
    table.batch([(key, "ab"[key % 2], 1) for key in range(6)])
    return table


def _guarded(table: MaintainedTable) -> list[str]:
    """Have the guard look; the operations of the commits that it made."""
    table.table.refresh()
    before = [s.snapshotId() for s in table.table.java.snapshots()]
    GUARD.check(table.table, None, wrote=True)
    return [str(s.operation()) for s in table.table.java.snapshots() if s.snapshotId() not in before]


def _deletes_then_rows(table: MaintainedTable) -> None:
    table.batch(deletes=[1, 2])
    table.batch([(9, "a", 3)])


def _two_of_deletes(table: MaintainedTable) -> None:
    table.batch(deletes=[1])
    table.batch(deletes=[2, 7])


LIVE = [(0, 1), (3, 1), (4, 1), (5, 1)]
RACES: dict[str, tuple[Callable[[MaintainedTable], None], list[tuple[int, int]]]] = {
    "deletes_then_rows": (_deletes_then_rows, [*LIVE, (9, 3)]),
    "two_of_deletes": (_two_of_deletes, LIVE),
}


@pytest.mark.parametrize(
    ("race", "version"), crossed(list(RACES), [2, 3], [("deletes_then_rows", 2), ("two_of_deletes", 3)])
)
def test_deletes_committed_while_files_are_rewritten_stay(
    maintained: MaintainedCatalog, race: str, version: int
) -> None:
    """`rewrite_data_files` with its defaults drops deletes that came while it ran; the guard gives them back as they
    were, in a commit without rows, and a commit without having looked is refused.
    """
    meanwhile, live = RACES[race]
    table = _filled(maintained, f"race_{race}_v{version}", version)
    table.compact(lambda: meanwhile(table))
    back = set(table.rows()) - set(live)
    assert back and back <= {(1, 1), (2, 1)}
    stale = int(table.table.java.currentSnapshot().parentId())
    with pytest.raises(CommitRefused, match="has to be looked at"):
        table.batch([(10, "a", 1)], checked=stale)
    assert _guarded(table) == ["delete", "replace"]
    assert table.rows() == live
    assert _guarded(table) == []
    table.upsert((3, "b", 5))
    assert table.rows() == sorted({**dict(live), 3: 5}.items())


@VERSIONS
def test_a_delete_comes_back_under_its_own_number(maintained: MaintainedCatalog, version: int) -> None:
    """A key that was deleted, lost its delete, and was written again since, keeps its newer row."""
    table = _filled(maintained, f"reborn_v{version}", version)

    def meanwhile() -> None:
        table.batch(deletes=[1, 2])
        table.batch([(1, "b", 7)])

    table.compact(meanwhile)
    assert table.rows().count((1, 1)) == 1
    _guarded(table)
    assert table.rows() == [(0, 1), (1, 7), (3, 1), (4, 1), (5, 1)]


@VERSIONS
def test_global_deletes_that_are_taken_for_dangling_come_back(maintained: MaintainedCatalog, version: int) -> None:
    """`remove-dangling-deletes` of Iceberg 1.12 leaves global deletes that have rows to delete; that of earlier
    versions takes them out of partitioned tables, and the guard gives them back.
    """
    table = _filled(maintained, f"dangling_v{version}", version, BY_P)
    table.batch([(7, "a", 2)], deletes=[1, 2])
    live = [*LIVE, (7, 2)]
    maintained.spark.sql(
        f"CALL {maintained.name}.system.rewrite_data_files(table => 'default.{table.name}', where => \"p = 'a'\", "
        "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    )
    assert table.rows() == live
    assert _guarded(table) == []
    table.replace(table.files()[1])  # what RemoveDanglingDeletesSparkAction of 1.11 commits
    assert (1, 1) in table.rows()
    assert _guarded(table) == ["delete", "replace"]
    assert table.rows() == live


@VERSIONS
def test_a_conversion_that_a_rewrite_undoes_is_done_again(maintained: MaintainedCatalog, version: int) -> None:
    """`rewrite_data_files` begins, deletes come and are converted, it ends: Iceberg lets it in, rows and all. The
    guard gives the deletes back as they were; rows of the same keys that came since stay.
    """
    table = _filled(maintained, f"undone_v{version}", version)

    def meanwhile() -> None:
        table.batch(deletes=[1, 2])
        assert convert_deletes(maintained.spark, table.table, "test").converted == 1
        table.batch([(1, "b", 7)])

    table.compact(meanwhile)
    assert {(1, 1), (2, 1)} < set(table.rows())
    live = [(0, 1), (1, 7), (3, 1), (4, 1), (5, 1)]
    assert _guarded(table) == ["delete", "replace"]
    assert table.rows() == live
    assert _guarded(table) == []
    assert convert_deletes(maintained.spark, table.table, "test").converted == 1
    table.compact()
    assert _guarded(table) == []
    assert table.rows() == live


def test_rewrites_that_read_a_conversion_are_left_alone(maintained: MaintainedCatalog) -> None:
    """A rewrite that began after a conversion has no row that it deleted, whichever number its files have."""
    table = _filled(maintained, "read_conversion", 3, BY_P)
    table.batch([(8, "a", 1)], deletes=[1, 2])
    convert_deletes(maintained.spark, table.table, "test")
    for options in ({}, FRESH):
        table.compact(options=options)
        assert _guarded(table) == []
        assert table.rows() == [*LIVE, (8, 1)]


@pytest.mark.parametrize("when", tiered([BEFORE, AFTER], [BEFORE]))
def test_a_restoration_that_is_cut_is_made_once(maintained: MaintainedCatalog, when: str) -> None:
    """A process that ends right before or after it gave deletes back: the next one gives them back if they are not."""
    table = _filled(maintained, f"cut_{when}", 3)
    table.compact(lambda: _deletes_then_rows(table))
    with pytest.MonkeyPatch.context() as patch:
        cut_commits(patch, when)
        with pytest.raises(CommitUnknown):
            GUARD.check(table.table, None, wrote=True)
    assert _guarded(table) == (["delete", "replace"] if when == BEFORE else [])
    assert table.rows() == [*LIVE, (9, 3)]
    assert len(table.files()[1]) == 1


@VERSIONS
def test_maintenance_looks_at_rewrites_first(maintained: MaintainedCatalog, tmp_path: Path, version: int) -> None:
    """Conversion and rewrite stand upon no rewrite of another engine that was not looked at: what it lost is given
    back before, so that the sink finds nothing that it could not mend.
    """
    table = _filled(maintained, f"looked_v{version}", version)
    table.compact(lambda: _deletes_then_rows(table))
    assert {(1, 1), (2, 1)} & set(table.rows())
    outcomes = _maintainer(maintained, tmp_path).run(table.table, [CONVERT, REWRITE])
    assert [one.failure for one in outcomes] == [None, None]
    assert table.rows() == [*LIVE, (9, 3)]
    assert _guarded(table) == []
    table.upsert((1, "b", 8))
    assert table.rows() == [(0, 1), (1, 8), (3, 1), (4, 1), (5, 1), (9, 3)]


def test_a_rewrite_of_ours_does_not_undo_a_conversion(maintained: MaintainedCatalog, tmp_path: Path) -> None:
    """Where two maintainers work at once after all, the rewrite that a conversion overtook is done again upon it."""
    table = _filled(maintained, "two_maintainers", 3)
    table.batch([(key, "ab"[key % 2], 1) for key in range(6, 12)])
    live = [*LIVE, *((key, 1) for key in range(6, 12))]
    commit, waiting = _SettlingOperations.commit, [True]

    def overtaken(operations: Any, base: Any, made: Any) -> None:
        if waiting:
            waiting.clear()
            table.batch(deletes=[1, 2])
            assert convert_deletes(maintained.spark, table.table, "another").converted == 1
        commit(operations, base, made)

    with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs() as lines:
        patch.setattr(_SettlingOperations, "commit", overtaken)
        (outcome,) = _maintainer(maintained, tmp_path).run(table.table, [REWRITE])
    assert not waiting
    assert any("changed meanwhile which deletes apply" in line.get("reason", "") for line in lines)
    assert outcome.failure is None
    assert table.rows() == live
    table.compact()
    assert _guarded(table) == []
    assert table.rows() == live


def _maintainer(maintained: MaintainedCatalog, home: Path) -> Maintainer:
    """One of this connector, that merges two files already."""
    file = home / "sink.properties"
    file.write_text(
        "bootstrap.servers=h:1\ntopics=t\niceberg.maintenance.rewrite.min-input-files=2\n"
        "debezium.sink.iceberg.type=hadoop\ndebezium.sink.iceberg.warehouse=/none\n"
    )
    leases = LeaseTable.open(maintained.catalog, OFFSETS, "one")
    return Maintainer(maintained.spark, maintained.catalog, load([file]).table, CONNECTOR, leases)


def test_deletes_that_no_row_needs_stay_away(maintained: MaintainedCatalog) -> None:
    """A rewrite that applied the deletes may drop them: nothing is given back, nothing is committed."""
    table = _filled(maintained, "applied", 2)
    table.batch([(7, "a", 2)], deletes=[1, 2])
    table.compact()
    table.batch(deletes=[100])
    table.replace(table.files()[1])
    assert _guarded(table) == []
    assert table.rows() == [*LIVE, (7, 2)]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in_part"])
def test_deletes_that_others_turned_into_positions_stay_away(maintained: MaintainedCatalog, whole: bool) -> None:
    """Position deletes in the place of equality deletes are taken as such where they leave no row that was deleted."""
    table = _filled(maintained, f"positions_{whole}".lower(), 2)
    maintained.spark.sql(f"ALTER TABLE {table.path} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    maintained.spark.sql(f"DELETE FROM {table.path} WHERE id IN (1, 2)")
    positions = table.files()[1]
    table.batch(deletes=[1, 2] if whole else [1, 2, 3])
    numbers = {str(file.location()): int(file.dataSequenceNumber()) for file in positions}
    table.replace(table.files()[1], positions, numbered=numbers)
    assert _guarded(table) == ([] if whole else ["delete", "replace"])
    assert table.rows() == (LIVE if whole else [(0, 1), (4, 1), (5, 1)])


@pytest.mark.parametrize(("version", "lost"), crossed([2, 3], [True, False], [(3, True)]))
def test_rewritten_rows_do_not_outrun_their_deletes(maintained: MaintainedCatalog, version: int, lost: bool) -> None:
    """Files that another engine wrote from what it read before a delete came, under a newer number, get the number of
    the files that they replace: the delete applies again, and rows that came with it stay.
    """
    table = _filled(maintained, f"outrun_v{version}_{lost}".lower(), version)
    old, _ = table.files()
    new = table.write(*((key, "ab"[key % 2], 1) for key in range(6)))
    table.batch([(1, "b", 8)], deletes=[1, 2])
    table.replace([*old, *(table.files()[1] if lost else ())], new)
    assert {(1, 1), (2, 1)} < set(table.rows())
    assert _guarded(table) == ["delete", "replace"]
    assert table.rows() == [(0, 1), (1, 8), (3, 1), (4, 1), (5, 1)]
    table.batch(deletes=[3])
    assert table.rows() == [(0, 1), (1, 8), (4, 1), (5, 1)]
    assert _guarded(table) == []


def test_a_rewrite_under_a_new_number_that_applied_the_deletes_is_left_alone(maintained: MaintainedCatalog) -> None:
    """With `use-starting-sequence-number=false` Iceberg refuses a rewrite that a delete overtook; others are right."""
    table = _filled(maintained, "fresh_numbers", 2)
    table.batch([(1, "b", 8)], deletes=[1, 2])
    table.compact(options=FRESH)
    assert _guarded(table) == []
    with pytest.raises(Exception, match="Cannot commit rewrite"):
        table.compact(lambda: table.batch(deletes=[3]), options=FRESH)
    assert table.rows() == [(0, 1), (1, 8), (4, 1), (5, 1)]


def test_deletes_whose_files_are_gone_stop(maintained: MaintainedCatalog) -> None:
    """What cannot be given back is an error that says what to do."""
    table = _filled(maintained, "files_gone", 2)
    table.batch([(7, "a", 2)], deletes=[1, 2])
    _, deletes = table.files()
    table.replace(deletes)
    Path(str(deletes[0].location()).removeprefix("file:")).unlink()
    with pytest.raises(GapError, match=r"default\.files_gone.*removed.*icebridge offsets reset"):
        GUARD.check(table.table, None, wrote=True)
    table.batch()  # what `icebridge offsets reset` commits: a person has decided
    assert _guarded(table) == []


def test_rows_that_were_rewritten_twice_stop(maintained: MaintainedCatalog) -> None:
    """Rows that came back and were then written anew under newer numbers cannot be told from newer ones."""
    table = _filled(maintained, "twice", 2)
    table.compact(lambda: _deletes_then_rows(table))
    table.compact(options=FRESH)
    with pytest.raises(GapError, match=r"default\.twice.*rewritten since"):
        GUARD.check(table.table, None, wrote=True)


def test_an_expired_history_is_told(maintained: MaintainedCatalog) -> None:
    """Where the snapshots since the connector's last commit are gone nothing can be told, and that is said."""
    table = _filled(maintained, "expired", 2)
    for number in (20, 21):
        maintained.spark.sql(f"INSERT INTO {table.path} VALUES ({number}, 'a', 1)")
    table.table.refresh()
    table.table.java.expireSnapshots().retainLast(1).expireOlderThan(2**62).commit()
    table.table.refresh()
    with structlog.testing.capture_logs() as lines:
        assert _guarded(table) == []
        DeleteGuard("another").check(table.table, None, wrote=False)  # takes the table over as it is
    (line,) = lines
    assert "cannot be told" in line["event"]


def test_manifests_that_are_written_anew_hold_nothing_up(maintained: MaintainedCatalog) -> None:
    """`rewrite_manifests` leaves all files as they are: a batch lands upon it without a second try."""
    table = _filled(maintained, "manifests", 2)
    table.upsert((1, "b", 2))
    before = int(table.table.java.currentSnapshot().snapshotId())
    maintained.spark.sql(f"CALL {maintained.name}.system.rewrite_manifests('default.{table.name}')")
    table.table.refresh()
    assert str(table.table.java.currentSnapshot().operation()) == "replace"
    table.batch([(9, "a", 3)], checked=before)
    assert table.rows() == [(0, 1), (1, 2), (2, 1), (3, 1), (4, 1), (5, 1), (9, 3)]
