"""Look-ups of rows: what a task finds in data files of which some rows are deleted, and which files are joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeletes, PositionDeleteWriter
from connector.settings.iceberg.row_lookup import DECLARED_LOOKUPS, LOOKUP
from connector.sink.destinations.iceberg.row_search import join, key_index
from connector.sink.destinations.iceberg.row_search.base import FileRows, LookupScan
from connector.sink.destinations.iceberg.row_search.registry import ROW_SEARCHES
from connector.sink.model import task_output
from connector.sink.model.driver_output import FilesFound, FilesUnindexed, Written
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import TaskOutput, unpack_value
from tests.unit.sink_plans import layout

COLUMNS = {"id": pa.int64(), "name": pa.string()}


@pytest.fixture(name="table")
def sink_table(tmp_path: Path) -> TablePlan:
    """A table of format 2 or 3, below the test's folder."""
    own = attrs.evolve(layout(COLUMNS, ("id", "name")), location=str(tmp_path))
    return TablePlan(0, own, upsert=True, keep_deletes=False, write_mode="position-delete")


def _data_file(table: TablePlan, name: str, *keys: tuple[int, str]) -> str:
    path = Path(f"{_layout(table).location}/{name}.parquet")
    columns = [pa.array(column) for column in zip(*keys, strict=True)]
    pq.write_table(pa.table(columns, schema=table.layout.columns), path)
    return str(path)


def _layout(table: TablePlan) -> TableLayout:
    found: Any = table.layout
    return found


def _deleted(table: TablePlan, path: str, *positions: int, as_vectors: bool) -> PositionDeletes:
    writer = PositionDeleteWriter(_layout(table), "x", {path: DataFileDeletes(0, ())}, as_vectors=as_vectors)
    [file] = [*writer.add(path, BitMap64(positions)), *writer.close()]
    told = orjson.loads(file.json)
    return PositionDeletes(file.path, True, told.get("content-offset"), told.get("content-size-in-bytes"))


def _run(table: TablePlan, files: dict[str, DataFileDeletes], *keys: tuple[int, str]) -> list[Any]:
    """What a task tells that has these files: the rows that it found, and what it could not look into."""
    shard = [key_index._IndexedFile(path, 1, place) for path, place in files.items()]

    def work(found: Iterator[FileRows]) -> Iterator[pa.RecordBatch]:
        for file in found:
            yield task_output.to_batch([TaskOutput.of(Written(0, (file.path, list(file.positions))))])

    rows = pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*keys, strict=True)], ["id", "name"])
    payloads = [TaskOutput.of_keys(part, 0).payload for part in (rows.slice(0, 1), rows.slice(1))]
    handed = pa.RecordBatch.from_arrays([pa.array([1, 1]), pa.array(payloads)], ["shard", "payload"])
    task = key_index._search_task(table, [[], shard], work)
    values = [
        unpack_value(payload.as_buffer()) for batch in task(iter([handed])) for payload in batch.column("payload")
    ]
    return [value.description if isinstance(value, Written) else value for value in values]


def test_each_has_a_name() -> None:
    """Options, their documentation and the registry have the same look-ups."""
    assert list(ROW_SEARCHES) == list(DECLARED_LOOKUPS)
    assert all(name in LOOKUP.doc for name in ROW_SEARCHES)


@pytest.mark.parametrize("as_vectors", [False, True])
def test_live_rows_are_found_and_dead_ones_are_not(table: TablePlan, as_vectors: bool) -> None:
    """Rows that position deletes or vectors took out before are none; a file without live ones is left out."""
    one = _data_file(table, "one", (1, "a"), (2, "b"), (1, "a"), (1, "b"), (3, "c"))
    two = _data_file(table, "two", (2, "b"), (9, "z"))
    files = {
        one: DataFileDeletes(0, (), (_deleted(table, one, 0, 4, as_vectors=as_vectors),)),
        two: DataFileDeletes(0, (), (_deleted(table, two, 0, as_vectors=as_vectors),)),
    }
    assert _run(table, files, (2, "b"), (1, "a"), (3, "c"), (4, "d")) == [(one, [1, 2])]


def test_deletes_of_other_files_are_not_its_own(table: TablePlan) -> None:
    """A position delete file about several data files counts for each of them by its own rows."""
    one, two = _data_file(table, "one", (1, "a"), (2, "b")), _data_file(table, "two", (3, "c"), (4, "d"))
    shared = Path(_layout(table).location) / "shared.parquet"
    pq.write_table(pa.table({"file_path": [one, two], "pos": np.array([0, 1])}), shared)
    place = DataFileDeletes(0, (), (PositionDeletes(str(shared), False),))
    keys = ((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    assert _run(table, {one: place, two: place}, *keys) == [(one, [1]), (two, [0])]


def test_files_that_cannot_be_looked_into_are_told(table: TablePlan) -> None:
    """A task names the files whose keys have no index, and goes on with the others."""
    one, two = _data_file(table, "one", (1, "a")), f"{_layout(table).location}/two.parquet"
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), two)
    place = DataFileDeletes(0, ())
    found, unindexed = _run(table, {two: place, one: place}, (1, "a"), (2, "b"))
    assert found == (one, [0])
    assert isinstance(unindexed, FilesUnindexed)
    assert unindexed.paths == (two,)


def _task(path: str, **changes: Any) -> FileScanTask:
    place = DataFileDeletes(0, (), changes.pop("deletes", ()))
    values = {"data_format": "parquet", "records": 10, "equality_ids": frozenset(), **changes}
    return FileScanTask(Mock(), path, size_bytes=1, first_row_id=None, deletes=frozenset(), place=place, **values)


@pytest.mark.parametrize("count", [10, 10_000_000])
def test_what_an_index_does_not_tell_is_joined(table: TablePlan, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Files of other formats, with equality deletes or Avro deletes, and those that tasks could not look into, are
    joined; so are all where keys are too many for every task.
    """
    seen: dict[str, list[str]] = {}

    def run_job(_: LookupScan, files: list[FileScanTask], __: object) -> list[Any]:
        seen["indexed"] = [file.path for file in files]
        return [FilesUnindexed(0, ("odd",)), Written(0, "one"), FilesFound(0, ("plain",))]

    def run_join(scan: LookupScan, _: object) -> JobResult:
        seen["joined"] = [file.path for file in scan.files]
        return JobResult().add([Written(0, "two"), FilesFound(0, ("avro",))])

    monkeypatch.setattr(key_index, "_run_job", run_job)
    monkeypatch.setattr(join, "SEARCH", Mock(run=run_join))
    files = [
        _task("plain"),
        _task("avro", data_format="avro"),
        _task("equality", equality_ids=frozenset({1})),
        _task("odd", deletes=(PositionDeletes("x.puffin", True, 4, 40), PositionDeletes("x.parquet", False))),
        _task("deletes", deletes=(PositionDeletes("x.avro", False),)),
    ]
    scan = LookupScan(Mock(), Mock(), table, files, Mock(), KeyRanges(count, 8 * count), 2, None)
    result = key_index.SEARCH.run(scan, Mock())
    if count == 10:
        assert seen == {"indexed": ["odd", "plain"], "joined": ["avro", "equality", "odd", "deletes"]}
        assert (result.written, result.files_found) == ({0: ["one", "two"]}, ["plain", "avro"])
    else:
        assert seen == {"joined": [file.path for file in files]}


def test_files_beyond_the_limit_are_joined() -> None:
    """The largest files whose indexes an executor may keep are looked into; with a limit of nothing none is."""
    files = [_task(str(records), records=records) for records in (5, 900, 1, 400, 5)]
    assert [file.path for file in key_index._choose_files(files, 12 * 906)] == ["900", "5", "1"]
    assert key_index._choose_files(files, 0) == []


def test_tasks_get_about_as_many_rows() -> None:
    """Every file is in one shard, and there are no more shards than files."""
    files = [_task(str(records), records=records) for records in (5, 900, 1, 400, 300, 200)]
    shards = key_index._split_files(files, 2)
    assert sorted(sum(file.records for file in shard) for shard in shards) == [901, 905]
    assert sorted(file.path for shard in shards for file in shard) == sorted(file.path for file in files)
    assert [len(shard) for shard in key_index._split_files(files[:1], 8)] == [1]


def test_a_join_gives_the_rows_of_a_file_together() -> None:
    """Positions that come in several batches, sorted by file, are one file's."""
    batches = [
        pa.RecordBatch.from_arrays([pa.array(files), pa.array(positions)], ["file", "pos"])
        for files, positions in ((["a", "a", "b"], [3, 1, 7]), (["b"], [2**33]), ([], []), (["c"], [0]))
    ]
    batches[2] = batches[0].slice(0, 0)
    found = [(rows.path, list(rows.positions)) for rows in join._gather_files(iter(batches))]
    assert found == [("a", [1, 3]), ("b", [7, 2**33]), ("c", [0])]
