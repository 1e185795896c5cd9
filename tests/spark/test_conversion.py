"""Tables with equality deletes -> conversion -> the same rows by every reader, and no equality delete is left."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from connector.errors import CommitRefused
from connector.iceberg.read.scan_planning import plan_files
from connector.maintenance.conversion.conversion import (
    Conversion,
    commit_conversion,
    convert_deletes,
    discard_files,
    write_conversion,
)
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import tiered
from tests.histories.written_tables import (
    PARTITIONS,
    Case,
    Opened,
    Written,
    check_rows,
    fill,
    open_warehouse,
    summary_of,
)
from tests.model.key_types import KEY_TYPES, key_type

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

LONG = key_type("long")


@pytest.fixture(scope="module")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A catalog for the sink's code, and the same for readers."""
    return open_warehouse(spark, "conversions", tmp_path_factory.mktemp("conversions"))


def _possible_cases() -> list[Case]:
    wide = [
        Case(kind, "equality-delete", version, "parquet", by, 0, "conversions")
        for kind in KEY_TYPES
        for version in (2, 3)
        for by in (None, PartitionTerm("p", "identity"))
    ]
    transforms = [Case(LONG, "equality-delete", 3, "parquet", by, 0, "conversions") for by in PARTITIONS[2:]]
    avro = [Case(LONG, "equality-delete", version, "avro", None, 0, "conversions") for version in (2, 3)]
    return [case for case in (*wide, *transforms, *avro) if case.possible]


CASES = _possible_cases()
KEPT = [
    case
    for case in CASES
    if (case.kind.name, case.version, case.format, case.partition is None)
    in {("long", 2, "avro", True), ("uuid", 3, "parquet", False)}
]


@pytest.mark.parametrize("case", tiered(CASES, KEPT, lambda case: case.name))
def test_rows_stay_and_equality_deletes_go(spark: SparkSession, opened: Opened, case: Case) -> None:
    """A conversion is one replace snapshot without equality deletes in which every reader finds the model's rows."""
    tables, lake = opened
    written = fill(spark, tables, case)
    keys = sorted(written.model)[::2] or [case.kind.extreme[0]]
    written.batch({key: None if turn % 2 else 9_000 + turn for turn, key in enumerate(keys)}, Random(5))
    before = _row_ids(spark, written)
    done = convert_deletes(spark, written.table, "test")
    assert done.converted and done.rows and not done.unconverted
    summary = summary_of(written)
    assert summary["operation"] == "replace"
    assert summary["total-equality-deletes"] == "0"
    assert int(summary["total-position-deletes"]) == done_positions(written)
    check_rows(spark, lake, written)
    assert _row_ids(spark, written) == before
    _check_layout(spark, written)
    assert convert_deletes(spark, written.table, "test").converted == 0
    # What was deleted by position goes on counting when more is deleted.
    written.batch(dict.fromkeys(sorted(written.model)[::3] or [keys[0]]), Random(6))
    convert_deletes(spark, written.table, "test")
    check_rows(spark, lake, written)
    _check_layout(spark, written)


def done_positions(written: Written) -> int:
    """How many rows of the table's files are not live."""
    return sum(task.file.record_count for task in written.table.metadata().scan().plan_files()) - len(written.model)


def _row_ids(spark: SparkSession, written: Written) -> dict[int, int]:
    if written.case.version == 2 or not written.case.kind.in_spark:
        return {}
    return dict(map(tuple, spark.sql(f"SELECT v, _row_id FROM {written.case.table}").collect()))


def _check_layout(spark: SparkSession, written: Written) -> None:
    """At most one delete file for each data file, about it alone."""
    table = written.table
    assert table.snapshot_id is not None
    for task in plan_files(spark, table, table.snapshot_id):
        assert len(task.deletes) == len(task.place.deletes) <= 1
        assert all(delete.alone for delete in task.place.deletes)
        assert all((delete.offset is not None) == (written.case.version == 3) for delete in task.place.deletes)


def _begin(spark: SparkSession, opened: Opened, seed: int, version: int) -> tuple[Written, Conversion]:
    """A table, and a conversion of it that waits for its commit."""
    tables, _ = opened
    written = fill(spark, tables, Case(LONG, "equality-delete", version, "parquet", None, seed, "conversions"))
    written.table.java.updateProperties().set("write.delete.mode", "merge-on-read").commit()
    made = write_conversion(spark, written.table, written.table.layout())
    assert made is not None and made.written
    return written, made


def _refuse(spark: SparkSession, opened: Opened, written: Written, made: Conversion) -> None:
    """It is refused, and done anew it is right."""
    written.table.refresh()
    with pytest.raises(CommitRefused):
        commit_conversion(spark, written.table, made, "test")
    discard_files(written.table, made.written)
    check_rows(spark, opened[1], written)
    convert_deletes(spark, written.table, "test")
    assert summary_of(written)["total-equality-deletes"] == "0"
    check_rows(spark, opened[1], written)


def test_rows_that_come_meanwhile(spark: SparkSession, opened: Opened) -> None:
    """A batch of the sink between plan and commit is no conflict: its deletes stay, for the next conversion."""
    written, made = _begin(spark, opened, 1, 3)
    written.batch(
        {key: None if turn % 2 else 7_000 + turn for turn, key in enumerate(sorted(written.model))}, Random(1)
    )
    commit_conversion(spark, written.table, made, "test")
    assert int(summary_of(written)["total-equality-deletes"]) > 0
    check_rows(spark, opened[1], written)
    convert_deletes(spark, written.table, "test")
    check_rows(spark, opened[1], written)


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_rows_deleted_by_position_meanwhile(spark: SparkSession, opened: Opened, version: int) -> None:
    """Another engine's deletes of the same data files, by position, refuse the commit."""
    written, made = _begin(spark, opened, 2, version)
    gone = sorted(written.model.values())[::2]
    spark.sql(f"DELETE FROM {written.case.table} WHERE v IN ({', '.join(map(str, gone))})")
    written.model = {key: value for key, value in written.model.items() if value not in gone}
    if version == 2:  # A file of others is beside ours: both count.
        written.table.refresh()
        commit_conversion(spark, written.table, made, "test")
        check_rows(spark, opened[1], written)
    else:
        _refuse(spark, opened, written, made)


@pytest.mark.thorough
def test_files_rewritten_meanwhile(spark: SparkSession, opened: Opened) -> None:
    """A compaction that removed the data files refuses the commit."""
    written, made = _begin(spark, opened, 3, 3)
    spark.sql(
        "CALL conversions.system.rewrite_data_files(table => 'default." + written.case.name + "', "
        "options => map('rewrite-all', 'true'))"
    )
    _refuse(spark, opened, written, made)


@pytest.mark.thorough
def test_table_rolled_back_meanwhile(spark: SparkSession, opened: Opened) -> None:
    """A conversion of a snapshot that was rolled back is refused."""
    written, made = _begin(spark, opened, 4, 3)
    java = written.table.java
    java.manageSnapshots().rollbackTo(java.currentSnapshot().parentId()).commit()
    written.table.refresh()
    with pytest.raises(CommitRefused):
        commit_conversion(spark, written.table, made, "test")
