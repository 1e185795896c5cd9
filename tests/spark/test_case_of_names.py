"""A table with columns that differ by the case of their names alone -> maintained, and searched, as others are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.iceberg.read.scan_planning import plan_files
from connector.maintenance.tasks import CONVERT, MANIFESTS, REWRITE
from tests.histories import maintained
from tests.histories.maintained import MaintainedCatalog, MaintainedTable
from tests.histories.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COLUMNS = pa.schema([("id", pa.int64()), ("N", pa.string()), ("n", pa.int64())])


def test_a_table_with_names_that_differ_by_case(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes are converted, files and manifests merged; filters name one of both columns, or the key."""
    monkeypatch.setattr(maintained, "COLUMNS", COLUMNS)
    workshop = Workshop(spark, tmp_path, "cases")
    schema = maintained.build_table_schema(COLUMNS, ("id",), frozenset(), nanoseconds=False)
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
    assert spark.conf.get("spark.sql.caseSensitive") == "false"
