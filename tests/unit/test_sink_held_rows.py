"""Columns of a table -> the one that tells when its rows were written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connector.sink.destinations.iceberg.lookups.held_rows import find_place_column, find_time_column
from tests.unit.sink_plans import layout

LONG, INSTANT, TEXT = pa.int64(), pa.timestamp("us", "UTC"), pa.string()


@pytest.mark.parametrize(
    ("columns", "dedup", "prefix", "expected"),
    [
        ({"__source_ts_ns": LONG, "__source_ts_ms": LONG}, "__source_ts_ms", "__", "__source_ts_ms"),
        ({"__source_ts_ns": LONG, "__source_ts_ms": LONG, "__ts_ns": LONG}, "__ts_ns", "__", "__source_ts_ns"),
        ({"__source_ts_ms": INSTANT}, "__source_ts_ms", "__", "__source_ts_ms"),
        ({"_source_ts_us": LONG, "version": LONG}, "version", "_", "_source_ts_us"),
        ({"version": LONG}, "version", "__", "version"),
        ({"version": TEXT}, "version", "__", None),
        ({"__source_ts_ns": TEXT, "__ts_ns": LONG}, "__ts_ns", "__", "__ts_ns"),
        ({}, "__source_ts_ns", "__", None),
    ],
)
def test_the_time_of_the_source_tells_when_a_row_was_written(
    columns: dict[str, pa.DataType], dedup: str, prefix: str, expected: str | None
) -> None:
    """A dedup column that is such a time stays the one; any other comes after the times of the source."""
    assert find_time_column(layout({"id": LONG, **columns}, ("id",)), dedup, prefix) == expected


@pytest.mark.parametrize(
    ("columns", "prefix", "expected"),
    [
        ({"__lsn": LONG, "__source_lsn": LONG}, "__", "__source_lsn"),
        ({"_lsn": LONG}, "_", "_lsn"),
        ({"lsn": LONG}, "", None),
        ({"source_lsn": LONG}, "", "source_lsn"),
        ({"__source_lsn": TEXT}, "__", None),
        ({}, "__", None),
    ],
)
def test_the_place_in_the_log_tells_where_a_row_was_written(
    columns: dict[str, pa.DataType], prefix: str, expected: str | None
) -> None:
    """It is PostgreSQL's, as a number; without a prefix a bare name is the row's own."""
    assert find_place_column(layout({"id": LONG, **columns}, ("id",)), prefix) == expected
