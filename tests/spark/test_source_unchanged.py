"""Updates that change nothing of what is published: which are left out, whatever the types of their columns."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from connector.source.changes.unchanged_rows import drop_unchanged

pytestmark = pytest.mark.spark

IMAGE = "STRUCT<id: BIGINT, v: DOUBLE, `a.b`: MAP<STRING, BIGINT>, more: STRUCT<k: INT, w: ARRAY<STRING>>>"
ROW = (1, 1.0, {"x": 1, "y": 2}, (5, ["a", None]))
"""What a row was before; each case is what became of it."""
CASES = {
    "nothing": ROW,
    "another order of a map": (1, 1.0, {"y": 2, "x": 1}, (5, ["a", None])),
    "id": (2, 1.0, {"x": 1, "y": 2}, (5, ["a", None])),
    "v": (1, None, {"x": 1, "y": 2}, (5, ["a", None])),
    "a.b": (1, 1.0, {"x": 1}, (5, ["a", None])),
    "more": (1, 1.0, {"x": 1, "y": 2}, (5, ["a"])),
}


@pytest.mark.parametrize(
    ("columns", "keys", "left"),
    [
        (("id", "v", "a.b", "more"), ("id",), {"id", "v", "a.b", "more"}),
        (("id", "v"), ("id",), {"id", "v"}),
        (("v",), ("id",), {"id", "v"}),
        (("a.b",), ("more.k",), {"a.b", "more"}),
        ((), (), set()),
    ],
)
def test_updates_without_change_are_left_out(
    spark: SparkSession, columns: tuple[str, ...], keys: tuple[str, ...], left: set[str]
) -> None:
    """A column that is published, or of the key, has to differ; creates and deletes stay, whatever they hold."""
    rows = [("u", name, ROW, after) for name, after in CASES.items()]
    rows += [("c", "made", None, ROW), ("d", "gone", ROW, None)]  # type: ignore[list-item]
    frame = spark.createDataFrame(rows, f"op STRING, name STRING, before {IMAGE}, after {IMAGE}")
    assert {row.name for row in drop_unchanged(frame, columns, keys).collect()} == {*left, "made", "gone"}
