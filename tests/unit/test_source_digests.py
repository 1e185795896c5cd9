"""Digests of rows as SQL: how large and how deep the text is that Spark gets; what they tell apart needs Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from connector.source.changes.rewrites.row_digests import write_digests

pytestmark = pytest.mark.unit


def _fields(count: int, kind: DataType) -> list[StructField]:
    return [StructField(f"c{place}", kind) for place in range(count)]


def _depth(text: str) -> int:
    deepest = depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        deepest = max(deepest, depth)
    return deepest


@pytest.mark.parametrize("kind", [LongType(), DoubleType(), MapType(StringType(), ArrayType(LongType()))], ids=str)
def test_digests_of_wide_rows_are_as_deep_as_those_of_narrow_ones(kind: DataType) -> None:
    """What Spark does with an expression grows with its depth: it must not grow with the number of columns."""
    few, many = (write_digests(_fields(count, kind))[0] for count in (2, 1200))
    assert _depth(many) == _depth(few)
    assert len(many) < 620 * len(few)


def test_both_halves_hash_everything_with_their_own_salt() -> None:
    """Which columns are null comes first, as the hash skips those; the halves differ in their salt alone."""
    high, low = write_digests(_fields(2, LongType()))
    assert high == "xxhash64(17, `c0` IS NULL, `c1` IS NULL, `c0`, `c1`)"
    assert low == high.replace("17", "1000003")


def test_nested_values_are_hashed_by_names_that_mean_nothing_else() -> None:
    """A field may have any name, and each lambda has a variable of its own."""
    kind = ArrayType(ArrayType(StructType([StructField("a`b.c", LongType())])))
    (high, _) = write_digests([StructField("c0", kind)])
    assert "item1.`a``b.c`" in high and "transform(item0, item1 ->" in high
