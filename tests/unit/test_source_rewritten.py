"""Walking rewritten Parquet files on executors: the tasks' work, run here without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.source.changes.rewrites.file_alignment import RowGroupMatch, group_rewrites, is_in_order
from connector.source.changes.rewrites.file_diff import _find_matches, _read_heads, _walk_rewrites
from connector.source.changes.rewrites.rewritten_files import RewrittenFiles
from connector.source.changes.rewrites.row_alignment import AFTER, BEFORE

pytestmark = pytest.mark.unit


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema(
    [
        _field("id", pa.int64(), 1),
        _field("v", pa.string(), 2),
        _field("d", pa.float64(), 3),
        _field("t", pa.time64("us"), 4),
        _field("ts", pa.timestamp("us", "UTC"), 5),
        _field("dec", pa.decimal128(10, 2), 6),
    ]
)


def _rows(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "v": f"v{i}", "d": i / 3, "t": None, "ts": i, "dec": None} for i in range(start, start + count)]


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> str:
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=500)
    return str(path)


def _numbers(count: int) -> Any:
    return iter([pa.RecordBatch.from_pydict({"id": list(range(count))})])


def _left(files: RewrittenFiles) -> tuple[list[dict[str, Any]], bool]:
    """What the three jobs give, and whether files were found in order."""
    heads = [row for batch in _read_heads(_numbers(len(files.before)), files) for row in batch.to_pylist()]
    known = [(row["file"], row["row_group"], row["heads"]) for row in heads]
    seen = [row for b in _find_matches(_numbers(len(files.after)), files, known) for row in b.to_pylist()]
    sightings = [
        RowGroupMatch(*(row[n] for n in ("before", "row_group", "after", "first_row", "last_row"))) for row in seen
    ]
    groups = group_rewrites(sightings, len(files.before), len(files.after))
    left = [row for batch in _walk_rewrites(_numbers(len(groups)), files, groups) for row in batch.to_pylist()]
    return left, is_in_order(sightings, len(known))


@pytest.mark.parametrize("key", [(0,), (0, 1)])
def test_files_merged_by_a_rewrite(tmp_path: Path, key: tuple[int, ...]) -> None:
    """Three files rewritten into two, in another order, leave exactly the rows that changed, with file and position."""
    old = [_rows(start, 2000) for start in (0, 2000, 4000)]
    new = [row for part in (2, 0, 1) for row in old[part]]
    new = [{**row, "v": "changed"} if row["id"] % 1000 == 7 else row for row in new if row["id"] % 1500 != 3]
    new.append({**new[0], "id": 99_999})
    before = tuple(_write(tmp_path / f"old{n}.parquet", rows) for n, rows in enumerate(old))
    after = (_write(tmp_path / "new0.parquet", new[:3500]), _write(tmp_path / "new1.parquet", new[3500:]))
    left, found = _left(RewrittenFiles(before, after, SCHEMA, key, {}))
    assert found
    gone = {row["c0"]: row for row in left if row["side"] == BEFORE}
    came = {row["c0"]: row for row in left if row["side"] == AFTER}
    updated, deleted = {i for i in range(6000) if i % 1000 == 7}, {3, 1503, 3003, 4503}
    assert set(gone) == updated | deleted
    assert set(came) == updated | {99_999}
    assert (gone[2007]["file"], gone[2007]["pos"]) == (before[1], 7)
    assert came[2007]["c1"] == "changed"


def test_rows_have_their_ids(tmp_path: Path) -> None:
    """Row ids are those that a file holds, else counted from the file's first; none where that is not known."""
    rows = _rows(0, 600)
    held = pa.schema([*SCHEMA, _field("_row_id", pa.int64(), 2147483540)])
    kept = [{**row, "v": "new" if row["id"] == 5 else row["v"], "_row_id": 1000 + row["id"]} for row in rows]
    came = {**rows[0], "id": 777, "_row_id": None}
    before, after = (_write(tmp_path / "a.parquet", rows),), (_write(tmp_path / "b.parquet", [*kept, came], held),)
    left, _ = _left(RewrittenFiles(before, after, SCHEMA, (0,), {}, {before[0]: 1000, after[0]: 5000}))
    assert sorted((row["c0"], row["side"], row["row_id"]) for row in left) == [
        (5, BEFORE, 1005),
        (5, AFTER, 1005),
        (777, AFTER, 5600),
    ]
    without, _ = _left(RewrittenFiles(before, after, SCHEMA, (0,), {}))
    assert {row["row_id"] for row in without} == {None}


OTHERS = {
    "narrower key": [_field("id", pa.int32(), 1), *list(SCHEMA)[1:]],
    "narrower column": [*list(SCHEMA)[:2], _field("d", pa.float32(), 3), *list(SCHEMA)[3:]],
    "fewer digits": [*list(SCHEMA)[:5], _field("dec", pa.decimal128(8, 2), 6)],
    "column added since": list(SCHEMA)[:5],
    "column dropped and added since": [SCHEMA.field(0), _field("v", pa.string(), 22), *list(SCHEMA)[2:]],
    "without ids": [field.remove_metadata() for field in SCHEMA],
}


@pytest.mark.parametrize("columns", OTHERS.values(), ids=OTHERS.keys())
def test_other_columns_are_not_read_as_they_are(tmp_path: Path, columns: list[pa.Field]) -> None:
    """A file whose columns, key or not, differ from the snapshot's is reported before the walk, on either side."""
    odd = _write(tmp_path / "odd.parquet", _rows(0, 5), pa.schema(columns))
    even = _write(tmp_path / "even.parquet", _rows(0, 5))
    (batch,) = _read_heads(_numbers(2), RewrittenFiles((even, odd), (), SCHEMA, (0,), {}))
    assert [(row["file"], row["readable"]) for row in batch.to_pylist()] == [(0, True), (1, False)]
    (batch,) = _find_matches(_numbers(2), RewrittenFiles((), (even, odd), SCHEMA, (0,), {}), [(0, 0, ["1"])])
    assert [(row["after"], row["readable"]) for row in batch.to_pylist()] == [(0, True), (None, False)]


SAME = {
    "renamed": [_field(f"{field.name}_then", field.type, n) for n, field in enumerate(SCHEMA, 1)],
    "in another order": list(SCHEMA)[::-1],
    "with a column dropped since": [_field("old", pa.int64(), 9), *SCHEMA],
}


@pytest.mark.parametrize("columns", SAME.values(), ids=SAME.keys())
def test_columns_are_known_by_their_ids(tmp_path: Path, columns: list[pa.Field]) -> None:
    """Names and places of columns in an old file do not matter, nor does a column that the snapshot has not."""
    names = {field.metadata[b"PARQUET:field_id"]: field.name for field in columns}
    rows = [{names[field.metadata[b"PARQUET:field_id"]]: row[field.name] for field in SCHEMA} for row in _rows(0, 600)]
    before = _write(tmp_path / "old.parquet", rows, pa.schema(columns))
    after = _write(tmp_path / "new.parquet", [{**row, "v": "n"} if row["id"] == 7 else row for row in _rows(0, 600)])
    left, found = _left(RewrittenFiles((before,), (after,), SCHEMA, (0,), {}))
    assert found
    assert [(row["side"], row["c0"], row["c1"]) for row in left] == [(BEFORE, 7, "v7"), (AFTER, 7, "n")]


def test_shuffled_rows_are_noticed(tmp_path: Path) -> None:
    """A rewrite that did not keep the order is not walked."""
    rows = _rows(0, 4000)
    shuffled = [rows[(i * 1777) % 4000] for i in range(4000)]
    files = RewrittenFiles(
        (_write(tmp_path / "a.parquet", rows),), (_write(tmp_path / "b.parquet", shuffled),), SCHEMA, (0,), {}
    )
    assert not _left(files)[1]


def test_a_date_that_has_no_text_is_a_key(tmp_path: Path) -> None:
    """Years before 0 and after 9999, which Arrow writes as texts that it does not read."""
    schema = pa.schema([_field("day", pa.date32(), 1), _field("v", pa.string(), 2)])
    days = [-800_000, *range(2_000), 2_932_897, 2**31 - 1]
    old = pa.table({"day": pa.array(days, pa.int32()).cast(pa.date32()), "v": [str(day) for day in days]}, schema)
    new = old.set_column(1, schema.field(1), [["changed" if day == 7 else str(day) for day in days]])
    before, after = str(tmp_path / "old.parquet"), str(tmp_path / "new.parquet")
    for path, rows in ((before, old), (after, new)):
        pq.write_table(rows.cast(schema), path, row_group_size=500)
    left, in_order = _left(RewrittenFiles((before,), (after,), schema, (0,), {}))
    assert in_order
    assert [(row["side"], row["c1"]) for row in left] == [(BEFORE, "7"), (AFTER, "changed")]
