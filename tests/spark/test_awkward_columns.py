"""Tables with columns that Spark does not take by itself -> maintained, searched and read as others are."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.snapshot_schema import load_snapshot_schema
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.maintenance.tasks import CONVERT, MANIFESTS, REWRITE
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.changes.snapshot_diff import read_changes
from tests.histories import maintained
from tests.histories.maintained import MaintainedCatalog, MaintainedTable
from tests.histories.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CASES = "spark.sql.caseSensitive"
COLUMNS = pa.schema([("id", pa.int64()), ("N", pa.string()), ("n", pa.int64())])


def test_a_table_with_names_that_differ_by_case(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Deletes are converted, files and manifests merged; filters name one of both columns, or the key."""
    monkeypatch.setattr(maintained, "COLUMNS", COLUMNS)
    # Other tests may have set it in this session.
    request.addfinalizer(partial(spark.conf.set, CASES, spark.conf.get(CASES)))
    spark.conf.set(CASES, "false")
    workshop = Workshop(spark, tmp_path, "cases")
    schema = build_table_schema(COLUMNS, ("id",), frozenset(), nanoseconds=False)
    made = workshop.catalog.create("t", schema, (), {"format-version": "2"})
    table = MaintainedTable(MaintainedCatalog(spark, workshop.name, workshop.catalog, workshop.lake), "t", made)
    for number in range(4):
        table.batch([(number, f"text {number}", number)])
    table.batch([(9, "text 9", 9)], [1])
    made.refresh()
    newest = made.snapshot_id
    assert newest is not None
    for name, value, found in (("id", 2, 1), ("n", 2, 1), ("N", '"text 2"', 1)):
        assert len(plan_files(spark, made, newest, f'{{"type": "eq", "term": "{name}", "value": {value}}}')) == found
    outcomes = workshop.maintainer().run(made, [CONVERT, REWRITE, MANIFESTS])
    assert [one.failure for one in outcomes] == [None] * 3
    done = {one.task: one.counts for one in outcomes}
    assert (done[CONVERT]["delete_files"], done[REWRITE]["removed"], done[REWRITE]["failed"]) == (1, 5, 0)
    rows = sorted((row["id"], row["N"], row["n"]) for row in workshop.lake.rows("t"))
    assert rows == [(number, f"text {number}", number) for number in (0, 2, 3, 9)]
    assert spark.conf.get(CASES) == "false"


def test_columns_that_nobody_wants_are_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time beside a list, which Iceberg's row reader refuses, can be read where the list is left out."""
    columns = pa.schema([("id", pa.int64()), ("t", pa.time64("us")), ("l", pa.list_(pa.int64()))])
    workshop = Workshop(spark, tmp_path, "unwanted")
    schema = build_table_schema(columns, ("id",), frozenset(), nanoseconds=False)
    made = workshop.catalog.create("t", schema, (), {"format-version": "2"})
    monkeypatch.setattr(maintained, "COLUMNS", pa.schema(list(made.layout().columns)))
    table = MaintainedTable(MaintainedCatalog(spark, workshop.name, workshop.catalog, workshop.lake), "t", made)
    rows: list[Any] = [(1, 5, [1]), (2, None, None), (3, 7, [])]
    table.batch(rows[:2])
    table.batch(rows[2:], [1])
    made.refresh()
    newest = made.snapshot_id
    assert newest is not None
    whole = load_snapshot_schema(spark, made, newest)
    with pytest.raises(FatalError, match="column t is of type time"):
        read_changes(TableReader(spark, made, whole), newest, RowKey(KeyKind.IDENTIFIERS, ("id",)))
    reader = TableReader(spark, made, whole.leave_out({"l"}))
    found = read_changes(reader, newest, RowKey(KeyKind.IDENTIFIERS, ("id",))).collect()
    assert sorted((row.op, (row.after or row.before).asDict()) for row in found) == [
        ("c", {"id": 3, "t": 7}),
        ("d", {"id": 1, "t": 5}),
    ]
