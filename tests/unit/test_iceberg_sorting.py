"""Sort orders: rows of a file in the order that its table has."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import evolve

from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.table_writer import TableWriter
from tests.unit.sink_plans import layout

COLUMNS = {"id": pa.int64(), "at": pa.timestamp("us"), "u": pa.uuid(), "note": pa.string()}


def _order(*fields: tuple[str, int, str, str]) -> str:
    names = ("transform", "source-id", "direction", "null-order")
    return json.dumps({"order-id": 7, "fields": [dict(zip(names, field, strict=True)) for field in fields]})


def _written(tmp_path: Path, order: str, rows: list[dict[str, object]]) -> tuple[list[object], dict[str, object]]:
    table = evolve(layout(COLUMNS), location=str(tmp_path), order_json=order)
    writer = TableWriter(table, "x")
    half = len(rows) // 2
    for some in (rows[:half], rows[half:]):
        writer.write_rows(pa.RecordBatch.from_pylist(some, table.columns))
    (made,) = (json.loads(text.json) for text in writer.close())
    return pq.read_table(made["file-path"]).column("id").to_pylist(), made


def _row(key: int, day: int | None = 1, note: str | None = None) -> dict[str, object]:
    at = None if day is None else datetime(2024, 1, day, 23 - key)
    return {"id": key, "at": at, "u": uuid.UUID(int=99 - key), "note": note}


def test_rows_of_a_file_are_in_the_tables_order(tmp_path: Path) -> None:
    """Transforms, directions and the place of nulls are those of the sort order, and the file says that it has it."""
    rows = [_row(1, 2, "b"), _row(2, None, "c"), _row(3, 1, "a"), _row(4, 1, None), _row(5, 2, "z")]
    order = _order(("day", 2, "desc", "nulls-first"), ("identity", 4, "asc", "nulls-last"))
    ids, made = _written(tmp_path, order, rows)
    assert ids == [2, 1, 5, 3, 4]
    assert made["sort-order-id"] == 7


def test_a_uuid_may_decide(tmp_path: Path) -> None:
    """Columns whose Arrow type has no order of its own are sorted by what they store."""
    ids, _ = _written(tmp_path, _order(("identity", 3, "asc", "nulls-first")), [_row(1), _row(3), _row(2)])
    assert ids == [3, 2, 1]


def test_a_table_without_order_keeps_the_rows_as_they_come(tmp_path: Path) -> None:
    """Nothing is sorted or said where the table has no sort order."""
    ids, made = _written(tmp_path, _order(), [_row(3), _row(1), _row(2)])
    assert ids == [3, 1, 2]
    assert "sort-order-id" not in made


def test_nanoseconds_may_be_sorted_by_any_time(tmp_path: Path) -> None:
    """Years, months, days, hours and buckets of nanoseconds order rows, also of those before 1970."""
    schema = build_table_schema(
        pa.schema({"id": pa.int64(), "at": pa.timestamp("ns")}), (), frozenset(), nanoseconds=True
    )
    moments = {1: 7_200_000_000_001, 2: -1, 3: 3_600_000_000_000, 4: None}
    rows = [{"id": key, "at": moment} for key, moment in moments.items()]
    for transform in ("year", "month", "day", "hour", "bucket[8]"):
        table = evolve(
            layout(COLUMNS),
            schema_json=schema.model_dump_json(),
            location=str(tmp_path),
            order_json=_order((transform, 2, "asc", "nulls-last")),
        )
        writer = TableWriter(table, transform[:4])
        writer.write_rows(pa.RecordBatch.from_pylist(rows, table.columns))
        (made,) = (json.loads(text.json) for text in writer.close())
        ids = pq.read_table(made["file-path"]).column("id").to_pylist()
        assert ids[-1] == 4
        assert transform == "bucket[8]" or ids[0] == 2
        assert transform != "hour" or ids == [2, 3, 1, 4]


def test_what_is_no_number_is_above_all_others(tmp_path: Path) -> None:
    """Rows of NaN are last in an ascending order, and first in a descending one, beside nulls."""
    numbers = {1: 1.0, 2: float("nan"), 3: None, 4: float("inf")}
    found = {}
    for direction in ("asc", "desc"):
        order = _order(("identity", 2, direction, "nulls-last"))
        table = evolve(layout({"id": pa.int64(), "x": pa.float64()}), location=str(tmp_path), order_json=order)
        writer = TableWriter(table, direction)
        rows = [{"id": key, "x": number} for key, number in numbers.items()]
        writer.write_rows(pa.RecordBatch.from_pylist(rows, table.columns))
        (made,) = (json.loads(text.json) for text in writer.close())
        found[direction] = pq.read_table(made["file-path"]).column("id").to_pylist()
    assert found == {"asc": [1, 4, 2, 3], "desc": [2, 4, 1, 3]}
