"""Keys of a batch -> the rows that go, and what takes them out: the product's tasks, over files in memory.

What Spark does between tasks is done over lists: reading live rows, joining them with keys. Planning is Iceberg's, over
bounds; positions, vectors, indexes of keys and rewritten files are the product's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import orjson
import pyarrow as pa

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, column_name
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.types.values.spark_types import to_spark
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeletes
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.row_search import join, key_index
from connector.sink.destinations.iceberg.row_search.base import FileRowsTask, LookupScan
from connector.sink.destinations.iceberg.row_search.registry import ROW_SEARCHES
from connector.sink.destinations.iceberg.write_modes import copy_on_write, position_delete, row_lookup
from connector.sink.destinations.iceberg.write_modes.row_lookup import search_rows
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import DriverOutput, JobResult, KeyLookup
from connector.sink.model.task_output import TaskOutput, read_rows, unpack_keys, unpack_value
from tests.simulation.catalog_server import LiveFile, SnapshotVersion
from tests.simulation.conflicts import may_hold
from tests.simulation.java_table import JavaTable
from tests.simulation.replacements import replaced
from tests.simulation.store import MemoryFiles, store_away


def find_rows(
    table: Any, plan: TablePlan, lookup: KeyLookup, store: int
) -> tuple[RowsToReplace | None, list[FileDescription]]:
    """As `write_modes.row_lookup.find_rows`; `lookup` has outputs in a list."""
    conflict_filter = lookup.ranges.filter(plan.layout.schema)
    java: JavaTable = table.java
    files = [] if plan.base is None else plan_files(java, plan.base, conflict_filter)
    if not files:
        return RowsToReplace((), conflict_filter), []
    keys: Any = list(lookup.outputs)
    scan = LookupScan(None, table, plan, files, keys, lookup.ranges, lookup.tasks, conflict_filter)  # type: ignore[arg-type]
    if plan.write_mode == "position-delete":
        return position_delete._delete_positions(scan)
    return _rewrite_files(scan, store)


def plan_files(java: JavaTable, base: int, where: str | None) -> list[FileScanTask]:
    """As `read.scan_planning.plan_files`."""
    version = java.calls.call(f"plan {java.now.name}", lambda: _version(java, base), store_away)
    filter_ = None if where is None else orjson.loads(where)
    data = [one for one in version.files if one.is_data and may_hold(one, filter_, java.now.schema)]
    return [_describe(java, one, version.files) for one in data]


def _version(java: JavaTable, base: int) -> SnapshotVersion:
    now = java.server.tables.get(java.now.name, java.now)
    if base not in now.snapshots:
        raise FatalError(f"snapshot {base} of {java.now.name} is gone")
    return now.snapshots[base]


def _describe(java: JavaTable, file: LiveFile, others: Sequence[LiveFile]) -> FileScanTask:
    deletes = [one for one in others if one.referenced == file.path]
    by_key = [one for one in others if one.content == "equality-deletes" and one.number > file.number]
    places = tuple(
        PositionDeletes(one.path, alone=True, offset=one.offset, size_bytes=one.size_bytes) for one in deletes
    )
    return FileScanTask(
        java=partial(_JavaTask, file, deletes),
        path=file.path,
        data_format="parquet",
        size_bytes=1,
        records=len(java.server.read(file.path)) if file.path in java.server.files else 1,
        first_row_id=None,
        deletes=frozenset(_name(one) for one in [*deletes, *by_key]),
        equality_ids=frozenset([1] if by_key else []),
        place=DataFileDeletes(0, (), places),
    )


def _name(delete: LiveFile) -> str:
    """As `scan_planning._format_delete_name`: vectors share files."""
    return delete.path if delete.offset is None else f"{delete.path}#{delete.offset}"


@attrs.frozen
class _JavaTask:
    live: LiveFile
    gone: Sequence[LiveFile]

    def file(self) -> LiveFile:
        return self.live

    def deletes(self) -> Sequence[LiveFile]:
        return self.gone


def _live_rows(scan: LookupScan, paths: Iterable[str]) -> list[tuple[str, int, dict[str, Any]]]:
    java: JavaTable = scan.table.java
    wanted = set(paths)

    def read() -> list[tuple[str, int, dict[str, Any]]]:
        version = _version(java, scan.plan.base)  # type: ignore[arg-type]
        try:
            return [(one.path, at, row) for one, at, row in java.server.live_rows(version) if one.path in wanted]
        except KeyError as gone:
            raise FatalError(f"file {gone} of {java.now.name} is gone") from gone

    return java.calls.call(f"read rows of {java.now.name}", read, store_away)


def _keys(scan: LookupScan) -> set[tuple[Any, ...]]:
    batches = (unpack_keys(pa.py_buffer(one.payload)) for one in _outputs(scan))
    return {tuple(row.values()) for batch in batches for row in batch.to_pylist()}


def _outputs(scan: LookupScan) -> Sequence[TaskOutput]:
    return scan.outputs  # type: ignore[return-value]


class MemoryJoin:
    """The search `join`, over lists."""

    def run(self, scan: LookupScan, work: FileRowsTask) -> JobResult:
        keys, names = _keys(scan), scan.plan.layout.keys
        rows = _live_rows(scan, [task.path for task in scan.files])
        found = sorted((path, at) for path, at, row in rows if tuple(row[name] for name in names) in keys)
        batch = pa.RecordBatch.from_pydict(
            {
                FILE_COLUMN: pa.array([path for path, _ in found], pa.string()),
                POSITION_COLUMN: pa.array([at for _, at in found], pa.int64()),
            }
        )
        return JobResult().add(_run(join._work_task(work), [batch] if found else []))


def _run_index_job(scan: LookupScan, files: Sequence[FileScanTask], work: FileRowsTask) -> list[DriverOutput]:
    """As `row_search.key_index._run_job`."""
    shards = key_index._split_files(files, scan.tasks)
    task = key_index._search_task(scan.plan, [[key_index._describe(file) for file in shard] for shard in shards], work)
    told: list[DriverOutput] = []
    for number in range(len(shards)):
        payloads = [one.payload for one in _outputs(scan)]
        numbers = pa.array([number] * len(payloads), pa.int32())
        told += _run(
            task, [pa.RecordBatch.from_arrays([numbers, pa.array(payloads, pa.binary())], ["shard", "payload"])]
        )
    return told


def _run(task: Any, batches: list[pa.RecordBatch]) -> Iterator[DriverOutput]:
    for batch in task(iter(batches)):
        for _, _, _, payload in read_rows(batch):
            yield unpack_value(payload.to_pybytes())


def _rewrite_files(scan: LookupScan, store: int) -> tuple[RowsToReplace, list[FileDescription]]:
    """As `write_modes.copy_on_write._rewrite_files`."""
    plan = scan.plan
    hit = set(search_rows(scan, copy_on_write._tell_files(plan.index)).files_found)
    affected = [task for task in scan.files if task.path in hit]
    if not affected:
        return RowsToReplace((), scan.conflict_filter), []
    keys, columns = _keys(scan), plan.layout.columns
    rows = _live_rows(scan, hit)
    staying = [one for one in rows if tuple(one[2][name] for name in plan.layout.keys) not in keys]
    names = {name: column_name(place) for place, name in enumerate(columns.names)}
    arrays = [to_spark(pa.array([row.get(field.name) for _, _, row in staying], field.type)) for field in columns]
    places = [pa.array([path for path, _, _ in staying]), pa.array([at for _, at, _ in staying], pa.int64())]
    batch = pa.RecordBatch.from_arrays([*arrays, *places], [*names.values(), FILE_COLUMN, POSITION_COLUMN])
    with replaced([(copy_on_write, "TableWriter", partial(TableWriter, files=MemoryFiles(store)))]):
        told = list(_run(copy_on_write._rewrite_task(plan, names, lineage=False), [batch] if staying else []))
    result = JobResult().add(told)
    ranges = scan.ranges.join([scan.ranges, *result.key_ranges.get(plan.index, ())])
    return RowsToReplace(affected, ranges.filter(plan.layout.schema)), result.written.get(plan.index, [])


@contextmanager
def searches_in_memory() -> Iterator[None]:
    """Have look-ups go over files in memory."""
    searches, own = {**ROW_SEARCHES, "join": MemoryJoin()}, MemoryJoin()
    with replaced(
        ((row_lookup, "ROW_SEARCHES", searches), (join, "SEARCH", own), (key_index, "_run_job", _run_index_job))
    ):
        yield


__all__ = ["find_rows", "searches_in_memory"]
