"""Row look-up key-index: keys + indexes of data files (`read.key_index`) -> positions of live rows.

Each task gets all keys and some of the files. Files without an index are joined: files that are not Parquet, that
equality deletes apply to, or whose keys only Iceberg's readers can read, and those for which an executor has no room
for an index. So are batches with more keys than may go to every task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.errors import FatalError
from connector.iceberg.catalog.file_io import file_io_for, map_read_errors
from connector.iceberg.keys.key_hashes import KeyHashes, hash_keys
from connector.iceberg.read.key_index import INDEX_ROW_BYTES, UnindexableFileError, sort_keys
from connector.iceberg.read.key_index_store import KeyIndexStore
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.values.spark_types import from_spark
from connector.iceberg.write.position_deletes import DataFileDeletes, read_deleted_positions
from connector.sink.destinations.iceberg.row_search import join
from connector.sink.destinations.iceberg.row_search.base import FileRows, FileRowsTask, LookupScan, RowSearch
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.model import task_output
from connector.sink.model.driver_output import FilesUnindexed
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import DriverOutput, JobResult
from connector.sink.model.task_output import Task, TaskOutput, unpack_value

_SHARD, _PAYLOAD = "shard", "payload"


@attrs.frozen
class _IndexedFile:
    path: str
    size_bytes: int
    place: DataFileDeletes


class KeyIndex:
    """Looks keys up in an index of each file."""

    def run(self, scan: LookupScan, work: FileRowsTask) -> JobResult:
        """Look the keys up where there are indexes, and join the rest."""
        indexed = _choose_files(scan.files, scan.plan.row_lookup.index_bytes) if scan.has_few_keys else []
        result = JobResult()
        if indexed:
            result.add(_run_job(scan, indexed, work))
        known = {task.path for task in indexed} - set(result.files_unindexed)
        rest = [task for task in scan.files if task.path not in known]
        if not rest:
            return result
        joined = join.SEARCH.run(attrs.evolve(scan, files=rest), work)
        for table, files in joined.written.items():
            result.written.setdefault(table, []).extend(files)
        result.files_found += joined.files_found
        return result


def _choose_files(files: Sequence[FileScanTask], index_bytes: int) -> list[FileScanTask]:
    """Return the files to look into by their indexes: the largest ones, as many as an executor may keep; each once."""
    chosen: list[FileScanTask] = []
    once = {task.path: task for task in files if _may_be_indexed(task)}.values()
    for task in sorted(once, key=lambda each: (-each.records, each.path)):
        if task.records * INDEX_ROW_BYTES <= index_bytes:
            chosen.append(task)
            index_bytes -= task.records * INDEX_ROW_BYTES
    return chosen


def _may_be_indexed(task: FileScanTask) -> bool:
    deletes = task.place.deletes
    readable = all(delete.offset is not None or delete.path.endswith(".parquet") for delete in deletes)
    return task.data_format == "parquet" and not task.equality_ids and readable


def _run_job(scan: LookupScan, files: Sequence[FileScanTask], work: FileRowsTask) -> list[DriverOutput]:
    shards = _split_files(files, scan.tasks)
    task = _search_task(scan.plan, [[_describe(file) for file in shard] for shard in shards], work)
    everywhere = F.explode(F.sequence(F.lit(0), F.lit(len(shards) - 1)))
    keys = scan.outputs.select(everywhere.alias(_SHARD), _PAYLOAD)
    frame = keys.repartitionById(len(shards), F.col(_SHARD)).mapInArrow(task, task_output.OUTPUT_SCHEMA)
    return [unpack_value(row.payload) for row in frame.collect()]


def _describe(task: FileScanTask) -> _IndexedFile:
    return _IndexedFile(task.path, task.size_bytes, task.place)


def _split_files(files: Sequence[FileScanTask], most: int) -> list[list[FileScanTask]]:
    """Split files among tasks, about as many rows to each."""
    shards: list[list[FileScanTask]] = [[] for _ in range(min(most, len(files)))]
    sizes = [0] * len(shards)
    for file in sorted(files, key=lambda each: (-each.records, each.path)):
        least = sizes.index(min(sizes))
        shards[least].append(file)
        sizes[least] += file.records + 1
    return shards


def _search_task(plan: TablePlan, shards: Sequence[Sequence[_IndexedFile]], work: FileRowsTask) -> Task:
    """Return the task that looks keys up in the files of its shard: frames of shard and keys -> outputs of `work`."""
    index, index_bytes = plan.index, plan.row_lookup.index_bytes

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for shard, payload in zip(*batch.columns, strict=True):
                keys.setdefault(shard.as_py(), []).append(task_output.unpack_keys(payload.as_buffer()))
        unindexed: list[str] = []

        def found() -> Iterator[FileRows]:
            store = KeyIndexStore.open(index_bytes)
            for shard, parts in keys.items():
                wanted = _hash_wanted(parts, plan.layout)
                for file in shards[shard]:
                    try:
                        rows = _find_rows(store, plan, file, wanted)
                    except (UnindexableFileError, FatalError):
                        # Iceberg's readers may have rights, or know formats, that Arrow has not; or they say why not.
                        unindexed.append(file.path)
                        continue
                    if rows:
                        yield FileRows(file.path, rows)

        yield from work(found())
        if unindexed:
            yield task_output.to_batch([TaskOutput.of(FilesUnindexed(index, tuple(unindexed)))])

    return task


def _hash_wanted(parts: Sequence[pa.RecordBatch], layout: RowLayout) -> KeyHashes:
    """Return the keys of a batch in the order of their numbers."""
    table = pa.Table.from_batches(parts).combine_chunks()
    columns = zip(table.columns, layout.key_fields, strict=True)
    return sort_keys(hash_keys([from_spark(_to_array(column), field.type) for column, field in columns]))


def _to_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _find_rows(store: KeyIndexStore, plan: TablePlan, file: _IndexedFile, wanted: KeyHashes) -> BitMap64:
    """Return the positions of a file's live rows that have one of the keys."""
    layout, rows = file_layout(plan), BitMap64()
    for run in store.runs(layout, file.path, file.size_bytes):
        positions = run.find(wanted)
        if len(positions):
            rows |= BitMap64(positions.astype(np.uint64))
    for delete in file.place.deletes if rows else ():
        with map_read_errors(f"reading deletes of table {layout.name} in {delete.path}"):
            rows -= read_deleted_positions(file_io_for(layout.io_properties, delete.path), delete, file.path)
    return rows


SEARCH: RowSearch = KeyIndex()
