"""Indexes of data files' keys: which rows they find, of which files there are none, and how they are kept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys import key_hashes
from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.keys.key_hashes import hash_keys
from connector.iceberg.read import key_index
from connector.iceberg.read.key_index import IndexRun, UnindexableFileError, read_runs, sort_keys
from connector.iceberg.read.key_index_store import KeyIndexStore
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.opensearch.documents.document_ids import build_document_ids
from connector.sink.destinations.deleted_keys import keys_to_text
from tests.model.key_types import KEY_TYPES, KeyType
from tests.unit.sink_plans import layout

MANY_BYTES = 2**30


def _layout(**columns: pa.DataType) -> TableLayout:
    """A table whose columns are its key."""
    return _keyed(columns, *columns)


def _keyed(columns: dict[str, pa.DataType], *keys: str) -> TableLayout:
    """A table without required columns, whose key is configured."""
    schema = build_table_schema(pa.schema(list(columns.items())), (), frozenset(), nanoseconds=True)
    return attrs.evolve(layout({}), schema_json=schema.model_dump_json(), id_columns=keys)


def _write(path: Path, table: TableLayout, *columns: pa.Array, row_group_size: int = 7) -> str:
    """Write a data file of the table's columns, under their field ids."""
    pq.write_table(pa.table(list(columns), schema=table.rows), path, row_group_size=row_group_size)
    return str(path)


def _find(runs: Iterator[IndexRun], *columns: pa.Array) -> list[int]:
    """The positions of rows with these keys."""
    wanted = sort_keys(hash_keys(columns))
    return sorted(int(position) for run in runs for position in run.find(wanted))


@pytest.mark.parametrize("kind", KEY_TYPES, ids=lambda kind: kind.name)
def test_keys_of_every_type_are_found_where_they_are(tmp_path: Path, kind: KeyType) -> None:
    """An index gives just the positions that hold a wanted key, whatever its type."""
    rng = Random(kind.name)
    pool = kind.values(rng, 60)
    rows, wanted = [rng.choice(pool) for _ in range(80)], rng.sample(pool, len(pool) // 2)
    table = _layout(k=kind.arrow)
    path = _write(tmp_path / "a.parquet", table, kind.array(rows))
    found = _find(read_runs(table, path), kind.array(wanted))
    assert found == [place for place, row in enumerate(rows) if any(_is_same(row, key) for key in wanted)]


def _is_same(one: Any, other: Any) -> bool:
    return one is other or one == other or (one != one and other != other)  # noqa: PLR0124 - NaN


def test_numbers_differ_as_keys_do() -> None:
    """Keys of several columns have equal numbers where all columns are equal, and hardly ever else."""
    ones = pa.array([1, 1, 2, 1])
    numbers = hash_keys([ones, pa.array(["ab", "a", "ab", "ab"])]).hashes
    assert numbers[0] == numbers[3]
    assert len(np.unique(numbers)) == 3
    texts = pa.array([f"customer-{number:07}" for number in range(100_000)])
    assert len(np.unique(hash_keys([texts]).hashes)) == len(texts)
    assert (hash_keys([texts.slice(500, 9)]).hashes == hash_keys([texts]).hashes[500:509]).all()


def test_zeros_have_no_sign_and_nan_equals_itself() -> None:
    """Keys of floating point are compared as Spark's joins compare them."""
    numbers = hash_keys([pa.array([0.0, -0.0, float("nan"), -float("nan"), 1.0], pa.float32())]).hashes
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[3]
    assert len(np.unique(numbers)) == 3


def test_keys_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all keys have the same hash the values decide."""
    monkeypatch.setattr(key_hashes, "_mix", lambda result, _: result.fill(7))
    table = _layout(k=pa.string(), n=pa.int64())
    path = _write(tmp_path / "a.parquet", table, pa.array(["a", "b", "a", "c"]), pa.array([1, 2, 3, 4]))
    assert _find(read_runs(table, path), pa.array(["a", "c", "b"]), pa.array([1, 4, 9])) == [0, 3]


@pytest.mark.parametrize("count", [1, 50, 3_000])
def test_runs_of_a_file_and_keys_of_any_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Few keys in many rows, and many keys in few: every row is found once, whichever side is searched."""
    monkeypatch.setattr(key_index, "_RUN_ROWS", 300)
    monkeypatch.setattr(key_index, "_READ_ROWS", 64)
    rng = np.random.default_rng(count)
    rows, wanted = rng.integers(0, 900, 1_000), np.unique(rng.integers(0, 2_000, count))
    table = _layout(k=pa.int64())
    path = _write(tmp_path / "a.parquet", table, pa.array(rows), row_group_size=100)
    runs = list(read_runs(table, path))
    assert len(runs) > 2
    assert _find(iter(runs), pa.array(wanted)) == np.flatnonzero(np.isin(rows, wanted)).tolist()


def test_row_groups_without_any_wanted_key_are_passed_over(tmp_path: Path) -> None:
    """Row groups whose whole numbers lie outside what is looked for are not read; positions count all rows."""
    table = _keyed({"k": pa.int64(), "t": pa.string()}, "t", "k")
    numbers, texts = [*range(-20, 20), None, 99], [str(place) for place in range(42)]
    path = _write(tmp_path / "a.parquet", table, pa.array(numbers), pa.array(texts), row_group_size=10)
    groups = {(-20, -11): range(10), (-10, -1): range(10, 20), (0, 9): range(20, 30), (10, 19): range(30, 40)}
    groups[99, 99] = range(41, 42)
    for low, high in ((-20, 19), (-12, -11), (-11, 7), (50, 98), (99, 99), (100, 100), (-99, -21)):
        runs = read_runs(table, path, {"k": (low, high)})
        within = [places for (least, most), places in groups.items() if least <= high and most >= low]
        assert sorted(place for run in runs for place in run.positions) == [place for each in within for place in each]


def test_rows_without_a_key_are_no_ones(tmp_path: Path) -> None:
    """A null in a key column, or in a struct around it, is no key."""
    table = _keyed({"after": pa.struct([("rest", pa.string()), ("id", pa.int64())])}, "after.id")
    rows = pa.array([{"id": 1}, None, {"id": None}, {"id": 0}, {"id": 1}], table.rows.field(0).type)
    path = _write(tmp_path / "a.parquet", table, rows)
    assert _find(read_runs(table, path), pa.array([0, 1])) == [0, 3, 4]


def test_columns_are_those_of_the_same_id(tmp_path: Path) -> None:
    """A key that was renamed and widened since is found; another column took its name."""
    before, now = _layout(k=pa.int32(), n=pa.int32()), _layout(n=pa.int64(), k=pa.int64())
    path = _write(tmp_path / "a.parquet", before, pa.array([1, 2], pa.int32()), pa.array([20, 10], pa.int32()))
    assert _find(read_runs(now, path), pa.array([1, 10]), pa.array([20, 10])) == [0]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pa.table({"k": pa.array([1])}), id="no ids"),
        pytest.param(pa.table([pa.array([1])], schema=_layout(k=pa.int64(), n=pa.int64()).rows.remove(1)), id="fewer"),
        pytest.param(
            pa.table([pa.array(["x"]), pa.array([1])], schema=_layout(k=pa.string(), n=pa.int64()).rows), id="type"
        ),
    ],
)
def test_files_that_only_icebergs_readers_read(tmp_path: Path, made: pa.Table) -> None:
    """A file without field ids, without a key column, or with values of another type has no index, now and later."""
    table = _layout(k=pa.int64(), n=pa.int64())
    pq.write_table(made, tmp_path / "a.parquet")
    store = KeyIndexStore(tmp_path / "index", MANY_BYTES)
    for _ in range(2):
        with pytest.raises(UnindexableFileError):
            list(store.runs(table, str(tmp_path / "a.parquet"), 1))
    assert [entry.stat().st_size for entry in (tmp_path / "index").iterdir()] == [0]


def _store(tmp_path: Path, reads: list[str], max_bytes: int = MANY_BYTES) -> KeyIndexStore:
    """A store that notes which files it reads."""

    def read(table: TableLayout, path: str) -> Iterator[IndexRun]:
        reads.append(path)
        return read_runs(table, path)

    return KeyIndexStore(tmp_path / "index", max_bytes, read)


def _three_files(tmp_path: Path, table: TableLayout) -> list[str]:
    return [_write(tmp_path / f"{name}.parquet", table, pa.array([f"{name}{i}" for i in range(9)])) for name in "abc"]


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """The next look into a file, in whatever task, needs its index only; a lost one is made again."""
    reads: list[str] = []
    table = _layout(k=pa.string())
    path = _three_files(tmp_path, table)[0]
    for _ in range(2):
        assert _find(_store(tmp_path, reads).runs(table, path, 5), pa.array(["a3", "b1"])) == [3]
    assert reads == [path]
    for entry in (tmp_path / "index").iterdir():
        entry.unlink()
    assert _find(_store(tmp_path, reads).runs(table, path, 5), pa.array(["a8"])) == [8]
    assert _find(_store(tmp_path, reads).runs(table, path, 6), pa.array(["a8"])) == [8]
    assert len(reads) == 3
    assert _find(KeyIndexStore(None, MANY_BYTES).runs(table, path, 5), pa.array(["a0"])) == [0]


def test_an_empty_file_has_an_empty_index(tmp_path: Path) -> None:
    """A data file without rows is looked into like any other."""
    table = _layout(k=pa.string())
    path = _write(tmp_path / "a.parquet", table, pa.array([], pa.string()))
    for _ in range(2):
        assert _find(_store(tmp_path, []).runs(table, path, 5), pa.array(["a0"])) == []


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    """Above the limit no index is kept as long as all are in use; those that are not any more make room."""
    reads: list[str] = []
    table = _layout(k=pa.string())
    files = _three_files(tmp_path, table)
    store = _store(tmp_path, reads, max_bytes=1)
    for _ in range(2):
        assert [_find(store.runs(table, path, 5), pa.array(["a1", "c2"])) for path in files] == [[1], [], [2]]
    assert reads == [*files, *files[1:]]
    [kept] = (tmp_path / "index").iterdir()
    os.utime(kept, (time.time() - 3600,) * 2)
    assert _find(store.runs(table, files[1], 5), pa.array(["b4"])) == [4]
    [other] = (tmp_path / "index").iterdir()
    assert other.name != kept.name


def test_a_full_disk_keeps_nothing(tmp_path: Path) -> None:
    """Rows are found where no index can be written."""
    (tmp_path / "index").write_text("in the way")
    table = _layout(k=pa.string())
    path = _three_files(tmp_path, table)[1]
    assert _find(_store(tmp_path, []).runs(table, path, 5), pa.array(["b4"])) == [4]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_keys_that_are_equal_are_one_wherever_they_are_compared(kind: pa.DataType) -> None:
    """Zero has no sign, and what is no number equals itself: in folds, look-ups, ids and the table of deleted keys."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64)
    keys = pa.array([*np.concatenate([[0.0, -0.0], bits.view(np.float64), [1.5]]), None]).cast(kind)
    expected = [0, 0, 1, 1, 1, 2, 3]
    assert encode_keys([keys]).tolist() == expected
    assert encode_keys([keys, keys]).tolist() == expected
    there = keys.drop_null()
    for told in (keys_to_text([there]).to_pylist(), build_document_ids([there]).to_pylist()):
        assert [sorted(set(told), key=told.index).index(one) for one in told] == expected[:-1]
    assert len(set(hash_keys([there]).hashes.tolist())) == 3
