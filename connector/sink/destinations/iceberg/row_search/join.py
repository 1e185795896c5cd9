"""Row look-up join: keys + data files -> positions of the files' live rows, by one Spark join on the key columns.

Iceberg's readers read the files, so every kind of delete and file format is supported.

Cost: the key columns of every file that bounds do not exclude, in each batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import orjson
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, column_name
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.nested_columns import select_fields
from connector.sink.destinations.iceberg.row_search.base import FileRows, FileRowsTask, LookupScan, RowSearch, read_keys
from connector.sink.destinations.join_columns import column_aliases, key_column
from connector.sink.model import task_output
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import Task, unpack_value


class Join:
    """Reads the keys of the files."""

    def run(self, scan: LookupScan, work: FileRowsTask) -> JobResult:
        """Join, and bring the rows of each file together."""
        rows = _match_rows(scan).repartition(scan.tasks, FILE_COLUMN).sortWithinPartitions(FILE_COLUMN)
        outputs = rows.mapInArrow(_work_task(work), task_output.OUTPUT_SCHEMA).collect()
        return JobResult().add(unpack_value(row.payload) for row in outputs)


def _match_rows(scan: LookupScan) -> DataFrame:
    """Return file and position of the live rows that have one of the keys."""
    layout, condition = scan.plan.layout, F.lit(True)
    for live, key in zip(*(column_aliases(side, len(layout.keys)) for side in ("live", "key")), strict=True):
        condition = condition & (F.col(live) == F.col(key))
    keys = read_keys(scan.outputs, layout, scan.ranges)
    return _read_live_keys(scan).join(keys, condition, "left_semi").select(FILE_COLUMN, POSITION_COLUMN)


def _read_live_keys(scan: LookupScan) -> DataFrame:
    """Return key columns and position of every live row; a schema of keys only is one that Spark can read."""
    layout = scan.plan.layout
    document = orjson.loads(layout.schema_json)
    key_fields = select_fields(document["fields"], layout.key_paths)
    schema = SnapshotSchema(orjson.dumps({**document, "fields": key_fields}).decode())
    names = {name: column_name(place) for place, name in enumerate(schema.names)}
    live = TableReader(scan.spark, scan.table, schema).read_live_rows(scan.files)
    keys = zip(layout.key_paths, column_aliases("live", len(layout.keys)), strict=True)
    return live.select(*(key_column(names, path).alias(name) for path, name in keys), FILE_COLUMN, POSITION_COLUMN)


def _work_task(work: FileRowsTask) -> Task:
    """Return the task that does the work: frames of positions, sorted by file -> its outputs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(_gather_files(batches))

    return task


def _gather_files(batches: Iterator[pa.RecordBatch]) -> Iterator[FileRows]:
    """Return the positions of one file after the other."""
    path, positions = None, BitMap64()
    for batch in batches:
        codes = batch.column(0).dictionary_encode()
        which, at = np.asarray(codes.indices), np.asarray(batch.column(1))
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        for start, stop in pairwise([*starts, len(which)]):
            file = codes.dictionary[int(which[start])].as_py()
            if path is not None and file != path:
                yield FileRows(path, positions)
                positions = BitMap64()
            path = file
            positions |= BitMap64(at[start:stop].astype(np.uint64))
    if path is not None:
        yield FileRows(path, positions)


SEARCH: RowSearch = Join()
