"""Tables of many small commits -> maintenance -> the same rows, and what others need is still there."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import structlog
from pyspark.sql import SparkSession

from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.commit.settlement import _SettlingOperations
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.maintenance.expiry import expire_snapshots
from connector.maintenance.expiry_rules import Expiry
from connector.maintenance.maintainer import TaskOutcome
from connector.maintenance.partitions import count_partitions
from connector.maintenance.spark_actions import count_rewrite_groups, count_small_manifests
from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, ORPHANS, REWRITE
from connector.settings.iceberg.maintenance.policies import (
    MaintenanceSettings,
)
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.table_offset import TableOffset
from tests.harness.tiers import tiered
from tests.histories.workshop import OFFSETS, Workshop
from tests.histories.written_tables import check_rows, summary_of, values_by_spark
from tests.unit.test_maintenance_looks import draw_files, draw_policy

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests; each has a table of its own."""
    return Workshop(spark, tmp_path_factory.mktemp("maintained"))


def _by_task(outcomes: list[TaskOutcome]) -> dict[str, TaskOutcome]:
    assert [one for one in outcomes if one.failure] == []
    return {one.task: one for one in outcomes}


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_files_and_manifests_are_merged(spark: SparkSession, workshop: Workshop, version: int) -> None:
    """Deletes are converted, then files and manifests merged; rows and their ids stay."""
    written = workshop.written(1, version, PartitionTerm("p", "identity"))
    ids = f"SELECT v, {'_row_id' if version == 3 else 'v'} FROM {written.case.table}"
    before = dict(map(tuple, spark.sql(ids).collect()))
    counted = count_partitions(written.table)
    assert sum(each.equality_delete_files for each in counted) > 0
    assert {each.partition for each in counted} == {"p=0", "p=1", "(all partitions)"}
    done = _by_task(workshop.maintainer().run(written.table, [CONVERT, REWRITE, MANIFESTS]))
    assert list(done) == [CONVERT, REWRITE, MANIFESTS]
    assert done[CONVERT].counts["delete_files"] > 0
    assert done[REWRITE].counts["removed"] > done[REWRITE].counts["added"] > 0
    written.table.refresh()
    after = count_partitions(written.table)
    assert {each.partition: (each.data_files, each.equality_deletes, each.position_deletes) for each in after} == {
        "p=0": (1, 0, 0),
        "p=1": (1, 0, 0),
    }
    check_rows(spark, workshop.lake, written)
    assert dict(map(tuple, spark.sql(ids).collect())) == before
    written.batch(dict.fromkeys(sorted(written.model)[::2]), Random(1))
    assert values_by_spark(spark, written.case) == sorted(written.model.values())


def test_deletes_of_merged_files_go_though_commits_come(
    spark: SparkSession, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit refuses what Iceberg does about them: the merge is done once, and a later try takes them out."""
    written = workshop.written(37, 2, PartitionTerm("p", "identity"))
    attempt, attempts = _SettlingOperations._attempt, list[int]()

    def try_once(operations: Any, one: Any) -> Any:
        attempts.append(1)
        if len(attempts) in (2, 3):
            other.java.refresh()
            other.java.newAppend().commit()
        return attempt(operations, one)

    maintainer = workshop.maintainer()
    _by_task(maintainer.run(written.table, [CONVERT]))
    other = maintainer.load(written.table.name)
    assert other is not None
    monkeypatch.setattr(_SettlingOperations, "_attempt", try_once)
    with structlog.testing.capture_logs() as lines:
        done = _by_task(maintainer.run(written.table, [REWRITE]))
    assert done[REWRITE].counts["removed"] > done[REWRITE].counts["added"] > 0
    assert not [line for line in lines if line["log_level"] == "warning"]
    assert len(attempts) > 3
    written.table.refresh()
    assert sum(each.position_deletes for each in count_partitions(written.table)) == 0
    check_rows(spark, workshop.lake, written)


def test_small_files_are_merged_with_those_of_their_size(spark: SparkSession, workshop: Workshop) -> None:
    """With nothing configured Iceberg merges tiny files, rewrites one of which much is deleted, and leaves a larger one
    as it is, until there are more of its size.
    """
    name = f"{workshop.name}.`default`.tiers"
    spark.sql(
        f"CREATE TABLE {name} (id bigint, v string) USING iceberg TBLPROPERTIES ('format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read')"
    )
    rows = "SELECT /*+ COALESCE(1) */ id, concat(uuid(), uuid()) FROM range({}, {}, 1, 1)"

    def append(first: int, count: int) -> None:
        spark.sql(f"INSERT INTO {name} {rows.format(first, first + count)}")

    def sizes() -> dict[str, int]:
        found = spark.sql(f"SELECT file_path, file_size_in_bytes FROM {name}.data_files").collect()
        return {str(row[0]): int(row[1]) for row in found}

    def rewrite() -> dict[str, int]:
        table = maintainer.load("default.tiers")
        assert table is not None
        return dict(_by_task(maintainer.run(table, [REWRITE]))[REWRITE].counts)

    maintainer = workshop.maintainer()
    maintainer.settings = attrs.evolve(workshop.settings, maintenance=MaintenanceSettings())
    append(0, 60_000)
    (large,) = sizes()
    assert 2**21 < sizes()[large] < 2**22
    append(100_000, 10)
    spark.sql(f"DELETE FROM {name} WHERE id BETWEEN 100000 AND 100005")
    for turn in range(6):
        append(200_000 + 10 * turn, 10)
    assert rewrite()["removed"] >= 7
    assert set(sizes()) - {large} != set() and large in sizes() and len(sizes()) <= 3
    assert int(spark.table(name).count()) == 60_064
    for turn in range(7):
        append(300_000 + 100_000 * turn, 60_000)
    assert rewrite()["removed"] >= 8
    assert large not in sizes()
    assert max(sizes().values()) > 2**22
    assert int(spark.table(name).count()) == 480_064


def test_expiry_leaves_what_a_source_has_to_read(spark: SparkSession, workshop: Workshop) -> None:
    """Snapshots from a source's position on stay, as do tags; when the source has moved on, the others go. Old metadata
    files go from then on, by as many as the table says.
    """
    written = workshop.written(2)
    table, few = written.table, "write.metadata.previous-versions-max"
    table.java.updateProperties().set(few, "7").commit()
    snapshots = [one.snapshot_id for one in table.ancestors()][::-1]
    source = OffsetRows(workshop.catalog, OFFSETS, "src", SOURCE)
    source.put(None, {table.name: TableOffset(SnapshotOffset(table.uuid, snapshots[1])).json()})
    maintainer = workshop.maintainer()
    found = maintainer.find_expiry(table)
    assert found is not None and found.held_by == "src"
    done = _by_task(maintainer.run(table, [EXPIRE]))
    assert done[EXPIRE].counts["snapshots"] == 1
    properties = dict(table.java.properties())
    assert (properties["write.metadata.delete-after-commit.enabled"], properties[few]) == ("true", "7")
    table.refresh()
    assert [one.snapshot_id for one in table.ancestors()][::-1] == snapshots[1:]
    check_rows(spark, workshop.lake, written)
    table.java.manageSnapshots().createTag("kept", snapshots[1]).commit()
    for number in (5, 6):
        written.batch(
            {key: 1000 * number + turn for turn, key in enumerate(sorted(written.model)[::2])}, Random(number)
        )
    newest_commit = table.snapshot_id
    _by_task(maintainer.run(table, [CONVERT]))
    source.reload()
    source.put(None, {table.name: TableOffset(SnapshotOffset(table.uuid, table.snapshot_id)).json()})
    _by_task(maintainer.run(table, [EXPIRE]))
    table.refresh()
    left = {int(one.snapshotId()) for one in table.java.operations().current().snapshots()}
    # The sink finds its newest commit again at its start.
    assert left == {snapshots[1], newest_commit, table.snapshot_id}
    check_rows(spark, workshop.lake, written)


def test_a_branchs_own_retention_takes_nothing_from_a_source(spark: SparkSession, workshop: Workshop) -> None:
    """Iceberg goes by the retention of a branch, whatever date it is given: where that is shorter than a source is
    behind nothing expires.
    """
    table = workshop.written(33).table
    table.java.manageSnapshots().setMaxSnapshotAgeMs("main", 1).commit()
    table.refresh()
    oldest = [one.snapshot_id for one in table.ancestors()][-1]
    offset = TableOffset(SnapshotOffset(table.uuid, oldest)).json()
    OffsetRows(workshop.catalog, OFFSETS, "late", SOURCE).put(None, {table.name: offset})
    assert _by_task(workshop.maintainer().run(table, [EXPIRE]))[EXPIRE].counts["snapshots"] == 0
    table.refresh()
    assert oldest in {one.snapshot_id for one in table.ancestors()}
    expire_snapshots(spark, table, Expiry(1, 1, 1))  # Iceberg's own idea
    table.refresh()
    assert oldest not in {one.snapshot_id for one in table.ancestors()}


def test_a_look_says_what_icebergs_planner_picks(spark: SparkSession, workshop: Workshop) -> None:
    """Of random sets of files, of which there is nothing but metadata, a look finds a rewrite where a simulated one
    finds files to merge.
    """
    name, rng = f"{workshop.name}.`default`.looks", Random(11)
    spark.sql(f"CREATE TABLE {name} (id bigint, p int) USING iceberg PARTITIONED BY (p)")
    maintainer, iceberg = workshop.maintainer(), spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    table, answers = maintainer.load("default.looks"), list[bool]()
    assert table is not None
    for turn in range(24):
        files, policy = draw_files(rng), draw_policy(rng)
        overwrite = table.java.newOverwrite().overwriteByRowFilter(iceberg.expressions.Expressions.alwaysTrue())
        for partition, sizes in files.sizes.items():
            for place, size in enumerate(sizes):
                data = iceberg.DataFiles.builder(table.java.spec()).withPath(f"none/{turn}-{partition}-{place}.parquet")
                data = data.withPartitionPath(f"p={partition}").withFileSizeInBytes(size).withRecordCount(1)
                overwrite.addFile(data.build())
        overwrite.commit()
        table.refresh()
        groups = count_rewrite_groups(spark, table, policy, maintainer.read_state(table))
        assert (groups > 0) == (files.rewrite(policy) > 0), policy
        answers.append(groups > 0)
    assert {True, False} == set(answers)


def test_large_manifests_are_not_written_again(spark: SparkSession, workshop: Workshop) -> None:
    """Small manifests are merged, and one that is large enough stays; a look tells how many are small."""
    name, maintainer, rng = f"{workshop.name}.`default`.manifests", workshop.maintainer(), Random(3)
    spark.sql(
        f"CREATE TABLE {name} (id bigint) USING iceberg TBLPROPERTIES ('commit.manifest-merge.enabled' = 'false')"
    )
    table, iceberg = maintainer.load("default.manifests"), spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    assert table is not None
    for count in (500, 1, 1, 1):
        append = table.java.newAppend()
        for _ in range(count):
            data = iceberg.DataFiles.builder(table.java.spec()).withPath(f"none/{rng.randbytes(32).hex()}.parquet")
            append.appendFile(data.withFileSizeInBytes(1).withRecordCount(1).build())
        append.commit()
    large, *small = spark.sql(f"SELECT path, length FROM {name}.manifests ORDER BY length DESC").collect()
    assert large.length > 1.5 * small[0].length
    table.java.updateProperties().set("commit.manifest.target-size-bytes", str(large.length)).commit()
    table.refresh()
    assert count_small_manifests(table) == 3
    assert _by_task(maintainer.run(table, [MANIFESTS]))[MANIFESTS].counts["removed"] == 3
    table.refresh()
    left = {row.path for row in spark.sql(f"SELECT path FROM {name}.manifests").collect()}
    assert len(left) == 2 and large.path in left
    assert count_small_manifests(table) == 0


def test_orphans_go_when_they_are_old(spark: SparkSession, workshop: Workshop) -> None:
    """Old files below the table's location that no snapshot has go; young ones, and those of the table, stay."""
    written = workshop.written(3)
    folder = Path(str(written.table.java.location()).removeprefix("file:")) / "data"
    old, young = folder / "maintain-old.parquet", folder / "maintain-young.parquet"
    for file in (old, young):
        file.write_bytes(b"left behind")
    long_ago = time.time() - 4 * 24 * 3600
    for file in folder.rglob("*"):
        if file != young:
            os.utime(file, (long_ago, long_ago))
    done = _by_task(workshop.maintainer().run(written.table, [ORPHANS]))
    assert done[ORPHANS].counts["removed"] >= 1
    assert not old.exists() and young.exists()
    check_rows(spark, workshop.lake, written)


@pytest.mark.thorough
def test_orphans_of_a_table_with_another_one_below_it_stay(workshop: Workshop) -> None:
    """Files of a table below another one's location are none of its own, and nothing is deleted, however old they are;
    what is below goes on as it was. Nor is anything where deletion is switched off, which is no failure.
    """
    outer, inner = workshop.written(31).table, workshop.written(32).table
    home, other = (Path(str(one.java.location()).removeprefix("file:")) for one in (outer, inner))
    orphan, nested = home / "data" / "left-behind.parquet", home / "nested" / inner.name
    orphan.write_bytes(b"left behind")
    shutil.copytree(other, nested)
    long_ago = time.time() - 4 * 24 * 3600
    for file in [orphan, *nested.rglob("*.parquet")]:
        os.utime(file, (long_ago, long_ago))
    before = sorted(nested.rglob("*"))
    (failed,) = workshop.maintainer().run(outer, [ORPHANS])
    assert failed.failure is not None and "another table below its location" in failed.failure
    assert orphan.exists() and sorted(nested.rglob("*")) == before
    shutil.rmtree(nested)
    outer.java.updateProperties().set("gc.enabled", "false").commit()
    assert _by_task(workshop.maintainer().run(outer, [ORPHANS]))[ORPHANS].counts["removed"] == 0
    outer.java.updateProperties().set("gc.enabled", "true").commit()
    assert _by_task(workshop.maintainer().run(outer, [ORPHANS]))[ORPHANS].counts["removed"] >= 1
    assert not orphan.exists()


@pytest.mark.thorough
def test_orphans_of_a_table_at_whose_location_is_another_one_stay(workshop: Workshop) -> None:
    """A table that was renamed keeps its folder, which the next one of its former name gets too: neither takes the
    other's files for orphans, however old they are, and metadata files that it has left itself are none of another.
    """
    outer, inner = workshop.written(35).table, workshop.written(36).table
    home, other = (Path(str(one.java.location()).removeprefix("file:")) for one in (outer, inner))
    newest = Path(str(inner.java.operations().current().metadataFileLocation()).removeprefix("file:"))
    orphan, left, foreign = home / "data" / "left-behind.parquet", home / "metadata" / "a", home / "metadata" / "b"
    orphan.write_bytes(b"left behind")
    left, foreign = (file.with_name(f"0-{file.name}.metadata.json") for file in (left, foreign))
    shutil.copy(next((home / "metadata").glob("v1.*")), left)
    shutil.copy(newest, foreign)
    shutil.copytree(other / "data", home / "data", dirs_exist_ok=True)
    long_ago = time.time() - 4 * 24 * 3600
    for file in [orphan, left, foreign, *(home / "data").rglob("*.parquet")]:
        os.utime(file, (long_ago, long_ago))
    before = sorted(home.rglob("*"))
    (failed,) = workshop.maintainer().run(outer, [ORPHANS])
    assert failed.failure is not None and foreign.name in failed.failure
    assert sorted(home.rglob("*")) == before
    foreign.unlink()
    assert _by_task(workshop.maintainer().run(outer, [ORPHANS]))[ORPHANS].counts["removed"] >= 2
    assert not orphan.exists() and not left.exists()


def test_a_branch_is_maintained_alone(spark: SparkSession, workshop: Workshop) -> None:
    """Of a table that is written on a branch the branch is converted and merged; `main` and tags stay as they are."""
    written = workshop.written(9, 3, PartitionTerm("p", "identity"))
    table, name = written.table, written.case.table
    main = sorted(written.model.values())
    table.java.manageSnapshots().createBranch("audit").createTag("kept", table.snapshot_id).commit()
    table.follow("audit")
    before = table.java.currentSnapshot().snapshotId()
    for number in (1, 2):
        written.batch(
            {key: 1000 * number + turn for turn, key in enumerate(sorted(written.model)[::2])}, Random(number)
        )
    _by_task(workshop.maintainer().run(table, [CONVERT, REWRITE, MANIFESTS, EXPIRE]))
    table.refresh()
    assert table.java.currentSnapshot().snapshotId() == before
    newest = dict(table.java.snapshot("audit").summary())
    assert newest["total-equality-deletes"] == "0" and newest["total-data-files"] == "2"

    def values(of: str) -> list[int]:
        return sorted(row[0] for row in spark.sql(f"SELECT v FROM {name}{of}").collect())

    assert values(".branch_audit") == sorted(written.model.values())
    assert values("") == values(" VERSION AS OF 'kept'") == main


def test_a_table_whose_partitions_changed(spark: SparkSession, workshop: Workshop) -> None:
    """Deletes of files of former specs are converted, and all files merged: rows are the model's."""
    written = workshop.written(10, 3, PartitionTerm("p", "identity"))
    expressions: Any = spark._jvm.org.apache.iceberg.expressions.Expressions  # type: ignore[union-attr]
    changes = (
        lambda update: update.removeField("p").addField(expressions.bucket("k", 3)),
        lambda update: update.removeField("k_bucket_3"),
    )
    for number, change in enumerate(changes, 1):
        change(written.table.java.updateSpec()).commit()
        written.table.refresh()
        keys = sorted(written.model)[::2]
        written.batch(
            {key: None if turn % 3 == 0 else 1000 * number + turn for turn, key in enumerate(keys)}, Random(number)
        )
        check_rows(spark, workshop.lake, written)
    done = _by_task(workshop.maintainer().run(written.table, [CONVERT, REWRITE, MANIFESTS]))
    assert done[CONVERT].counts["delete_files"] > 0
    assert summary_of(written)["total-equality-deletes"] == "0"
    check_rows(spark, workshop.lake, written)
    written.batch(dict.fromkeys(sorted(written.model)[::3]), Random(9))
    _by_task(workshop.maintainer().run(written.table, [CONVERT, REWRITE]))
    check_rows(spark, workshop.lake, written)


def test_a_table_that_is_dropped_meanwhile(
    spark: SparkSession, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that goes while it is converted is a failure of each task, and nothing comes back of it."""
    written = workshop.written(11)

    def drop(*arguments: Any) -> None:
        spark.sql(f"DROP TABLE {written.case.table} PURGE")
        commit_exactly_once(*arguments)

    monkeypatch.setattr("connector.maintenance.conversion.conversion.commit_exactly_once", drop)
    outcomes = workshop.maintainer().run(written.table, [CONVERT, REWRITE, MANIFESTS])
    assert [one.task for one in outcomes if one.failure] == [CONVERT, REWRITE, MANIFESTS]
    (expiry,) = workshop.maintainer().run(written.table, [EXPIRE])
    assert expiry.failure
    assert written.case.name not in workshop.lake.names()
    assert workshop.maintainer().load(written.table.name) is None
