"""Files that stand under wrong partitions -> `icebridge repair` -> the same files, where readers look for them."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from connector.iceberg.keys.file_key_bounds import read_key_bounds
from connector.iceberg.repair.partition_repair import MisplacedFiles, find_misplaced_files, move_misplaced_files
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write import partitioning
from connector.maintenance.partitions import count_partitions
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.clients.lake import Lake
from tests.harness.tiers import tiered
from tests.histories.written_tables import (
    Case,
    Opened,
    Written,
    new_table,
    open_warehouse,
    places_of,
    row_ids_of,
    values_by_iceberg,
    values_by_spark,
)
from tests.model.key_types import key_type

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A catalog for the sink's code, and the same for readers."""
    return open_warehouse(spark, "misplaced", tmp_path_factory.mktemp("misplaced"))


def test_partitions_of_two_decimals(spark: SparkSession, opened: Opened) -> None:
    """A sink that starts, and maintenance, read such a table's manifests."""
    tables, _ = opened
    columns = pa.schema([("id", pa.int64()), ("a", pa.decimal128(9, 2)), ("b", pa.decimal128(9, 2))])
    schema = build_table_schema(columns, ("id",), frozenset(), nanoseconds=True)
    by = (PartitionTerm("a", "identity"), PartitionTerm("b", "identity"))
    table = tables.create("twice", schema, by, {"format-version": "2"})
    spark.sql("INSERT INTO misplaced.`default`.twice VALUES (1, 1.10, 2.20), (9, 1.10, -2.20)")
    table.refresh()
    assert read_key_bounds(table, table.layout()).bounds == {"id": (1, 9)}
    assert [(one.partition, one.records) for one in count_partitions(table)] == [
        ("a=1.10/b=-2.20", 1),
        ("a=1.10/b=2.20", 1),
    ]


def _moved(spark: SparkSession, lake: Lake, written: Written, case: Case) -> None:
    """Put files under their partitions: nothing is left to move, rows have their values and ids, and all readers have
    them, by their partitions too."""
    table = written.table
    table.refresh()
    found = find_misplaced_files(table)
    assert found.data_files and found.columns == ("k",) and not found.mixed
    ids = row_ids_of(spark, case) if table.format_version > 2 else {}
    places = places_of(spark, case)
    assert move_misplaced_files(table, found) == found.data_files + found.delete_files
    assert find_misplaced_files(table) == MisplacedFiles()
    assert places_of(spark, case) == places
    right = sorted(written.model.values())
    assert values_by_spark(spark, case) == values_by_iceberg(spark, lake, case) == right
    if ids:
        assert row_ids_of(spark, case) == ids


@pytest.mark.parametrize("version", tiered([2, 3], [2]))
@pytest.mark.parametrize("name", tiered(["double", "float"], ["float"]))
def test_numbers_without_digits_that_stand_under_null(
    spark: SparkSession, opened: Opened, version: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with NaN or an infinity under null, as they were written before, come under these, with their deletes."""
    encode = partitioning.encode_json

    def encode_finite(kind: Any, value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else encode(kind, value)

    monkeypatch.setattr(partitioning, "encode_json", encode_finite)
    tables, lake = opened
    kind = key_type(name)
    case = Case(kind, "position-delete", version, "parquet", PartitionTerm("k", "identity"), 50, "misplaced")
    written = new_table(spark, tables, case)
    nan, *infinities = (key for key in kind.extreme if not math.isfinite(key))
    for start in (0, 10):
        keys = [nan, *infinities, 1.5, 2.5]
        written.append([(key, start + n) for n, key in enumerate(keys)], Random(start))
    written.table.java.updateProperties().set("write.delete.mode", "merge-on-read").commit()
    spark.sql(f"DELETE FROM {case.table} WHERE v IN (0, 11, 3)")
    monkeypatch.undo()
    left = sorted({*range(len(keys)), *range(10, 10 + len(keys))} - {0, 11, 3})
    written.model = {(value,): value for value in left}
    _moved(spark, lake, written, case)
    rows = spark.table(case.table)
    assert [row.v for row in rows.filter("isnan(k)").collect()] == [10]
    assert sorted(row.v for row in rows.filter("k = double('infinity')").collect()) == [1]
    assert rows.filter("k IS NULL").count() == 0


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_times_beyond_the_calendar_that_stand_elsewhere(
    spark: SparkSession, opened: Opened, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of years, with equality deletes that are under them too; a file with several years is told, and left."""
    count = partitioning.count_times

    def count_until_9999(transform: Any, column: pa.Array) -> pa.Array:
        made = count(transform, column)
        return pc.if_else(pc.less(made, 8000), made, None)

    monkeypatch.setattr(partitioning, "count_times", count_until_9999)
    tables, lake = opened
    kind = key_type("timestamp")
    case = Case(kind, "equality-delete", version, "parquet", PartitionTerm("k", "year"), 60, "misplaced")
    written = new_table(spark, tables, case)
    far, near = 9_223_371_331_200_000_000, 1_700_000_000_000_000
    written.batch({far: 1, near: 2}, Random(1))
    written.batch({far: 3, near: None}, Random(2))
    written.batch({near: 4}, Random(3))
    monkeypatch.undo()
    _moved(spark, lake, written, case)
    written.batch({far: 5, near: 6}, Random(4))
    assert values_by_spark(spark, case) == values_by_iceberg(spark, lake, case) == [5, 6]
    monkeypatch.setattr(partitioning, "count_times", count_until_9999)
    written.batch({far: 7, far - 40 * 366 * 86_400_000_000: 8}, Random(5))
    written.table.refresh()
    found = find_misplaced_files(written.table)
    assert (found.manifests, found.mixed > 0) == ({}, True)
