"""Truncates: which rows of a table they take, by which column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connector.iceberg.commit.kafka_offsets import Watermark
from connector.sink.model.event_age import is_declared
from connector.sink.model.truncate_limit import find_truncate_limit
from connector.sink.model.truncates import TableTruncate, Truncate
from serde.events.positions.log_positions import NO_VALUE, source_number
from tests.unit import sink_plans

TS_NS, TS_MS, LSN = 1_700_000_000_123_456_789, 1_700_000_000_123, 77
PLACE = (source_number("s.shop.t @"), LSN, 0, 0)
NUMBER = pa.int64()


def _limit(
    columns: dict[str, pa.DataType],
    dedup: str,
    value: int,
    *,
    alone: bool = False,
    marks: dict[str, Watermark] | None = None,
) -> tuple[str, int] | None:
    known = {("t", 0): marks} if marks else {}
    table = sink_plans.upsert(0, {"id": NUMBER, **columns}, ("id",), watermarks=known)
    cut = TableTruncate.of([Truncate("t", 0, 10, TS_NS, PLACE, source="s.shop.t", dedup=value)], alone=alone)
    return find_truncate_limit(cut, table, sink_plans.plan(table, dedup_column=dedup))


@pytest.mark.parametrize(
    ("columns", "dedup", "value", "limit"),
    [
        ({"__source_ts_ns": NUMBER}, "__source_ts_ns", TS_NS, ("__source_ts_ns", TS_NS - 1)),
        ({"__source_ts_ns": NUMBER, "__ts_ns": NUMBER}, "__ts_ns", 5, ("__source_ts_ns", TS_NS - 1)),
        ({"__source_ts_ns": NUMBER, "__source_lsn": NUMBER}, "__source_lsn", LSN, ("__source_ts_ns", TS_NS - 1)),
        ({"__source_lsn": NUMBER}, "__source_lsn", LSN, ("__source_lsn", LSN - 1)),
        ({"__source_ts_ms": NUMBER}, "__source_ts_ms", TS_MS, ("__source_ts_ms", TS_MS - 1)),
        ({"__ts_ms": NUMBER}, "__ts_ms", 5, ("__ts_ms", 4)),
        ({"__source_lsn": NUMBER}, "__source_lsn", NO_VALUE, None),
        ({"__source_ts_ms": pa.timestamp("us", "UTC")}, "__source_ts_ms", TS_MS, None),
        ({}, "__source_ts_ns", TS_NS, None),
    ],
)
def test_rows_are_ordered_by_the_time_of_the_source_or_else_the_dedup_column(
    columns: dict[str, pa.DataType], dedup: str, value: int, limit: tuple[str, int] | None
) -> None:
    """Later rows of other partitions stay, whatever the dedup column is; without a number for it all rows go."""
    assert _limit(columns, dedup, value) == limit
    assert _limit(columns, dedup, value, alone=True) is None, "Kafka's order tells of all rows"


@pytest.mark.parametrize(
    ("column", "most"), [("__source_ts_ns", TS_NS), ("__source_ts_ms", TS_MS), ("__source_lsn", LSN)]
)
def test_rows_of_the_truncates_own_moment_go_where_the_table_is_behind_it(column: str, most: int) -> None:
    """The places that the table has of the source tell that all of its rows came before."""
    marks = {"s.shop.t @": Watermark(place=(LSN - 7, 0, 0))}
    assert _limit({column: NUMBER}, column, most, marks=marks) == (column, most)


def test_declared_places_are_not_compared_with_the_sources() -> None:
    """What the rows' own column counts says nothing of the source's log."""
    marks = {"s.shop.t @": Watermark(place=(1, 0, 0))}
    assert _limit({"version": NUMBER}, "version", 9, marks=marks) == ("version", 8)


@pytest.mark.parametrize(
    ("column", "prefix", "declared"),
    [
        ("version", "__", True),
        ("source_lsn", "__", True),
        ("__source_lsn", "__", False),
        ("__lsn", "__", False),
        ("lsn", "", True),
        ("x_source_pos", "x_", False),
        ("__source_lsn", "x_", False),
        ("__ts_ms", "__", False),
        ("__source_ts_us", "__", False),
    ],
)
def test_a_column_of_the_row_is_declared_to_tell_its_place(column: str, prefix: str, declared: bool) -> None:
    """Debezium's times and places are what they are."""
    assert is_declared(column, prefix) is declared
