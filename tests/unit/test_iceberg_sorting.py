"""Sort orders: rows of a file in the order that its table has."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import evolve

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
