"""Rewritten Parquet files -> the rows that changed, by walking old and new files side by side. Jobs of Arrow batches.

Three jobs: the first keys of each old row group; where these are in the new files (key columns only); then the walk
itself, a task per group of files that went into each other. Files are read as they are, so this way is taken only where
their columns are exactly the snapshot's; anything else goes by digests or by lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from connector.iceberg.read.file_changes import FileChanges
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN, column_name
from connector.iceberg.read.scan_planning import FileScanTask, find_repeated_paths
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema
from connector.source.changes.rewrites.file_alignment import FileRewrite, RowGroupMatch, group_rewrites, is_in_order
from connector.source.changes.rewrites.rewritten_files import BATCH_ROWS, RewrittenFiles, combine_keys
from connector.source.changes.rewrites.row_alignment import AFTER, BEFORE, find_unequal_rows
from connector.source.changes.row_key import RowIdentity, RowKey

MIN_REWRITTEN_ROWS = 200_000
"""Below this the three jobs cost more than they save."""

_HEAD_ROWS = 16
_SIDE = "side"
_HEADS_SCHEMA = pa.schema(
    [
        pa.field("file", pa.int32()),
        pa.field("row_group", pa.int32()),
        pa.field("heads", pa.list_(pa.string())),
        pa.field("readable", pa.bool_()),
    ]
)
_MATCHES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int32()) for name in ("before", "row_group", "after")),
        *(pa.field(name, pa.int64()) for name in ("first_row", "last_row")),
        pa.field("readable", pa.bool_()),
    ]
)
_KEY_TYPES = (pa.types.is_int32, pa.types.is_int64, pa.types.is_string, pa.types.is_date32)


def find_unpaired_rows(reader: TableReader, files: FileChanges, keys: RowKey) -> tuple[DataFrame, DataFrame] | None:
    """Return gone and new rows of rewritten files, most that stayed left out; None where this way cannot be taken.

    The rows are kept in executors' storage (memory, then disk) until the frames are forgotten.
    """
    plan = _plan_files(reader, files, keys)
    if plan is None:
        return None
    spark = reader.spark
    heads = _run_tasks(reader, plan, len(plan.before), _read_heads, _HEADS_SCHEMA).collect()
    if not all(row.readable for row in heads):
        return None
    known = [(row.file, row.row_group, list(row.heads)) for row in heads]
    matches = _run_tasks(reader, plan, len(plan.after), partial(_find_matches, known=known), _MATCHES_SCHEMA).collect()
    if not all(row.readable for row in matches):
        return None
    sightings = [
        RowGroupMatch(r.before, r.row_group, r.after, r.first_row, r.last_row) for r in matches if r.before is not None
    ]
    if not is_in_order(sightings, len(known)):
        return None
    groups = group_rewrites(sightings, len(plan.before), len(plan.after))
    shape = reader.nothing().schema
    wanted = StructType([StructField(_SIDE, IntegerType()), *shape.fields])
    walk = partial(_walk_rewrites, files=plan, groups=groups)
    rows = spark.range(0, len(groups), 1, len(groups)).mapInArrow(walk, wanted).localCheckpoint()
    gone, new = rows.filter(f"{_SIDE} = {BEFORE}"), rows.filter(f"{_SIDE} = {AFTER}")
    return gone.drop(_SIDE), new.drop(_SIDE)


def _plan_files(reader: TableReader, files: FileChanges, keys: RowKey) -> RewrittenFiles | None:
    tasks = (*files.removed, *files.added)
    if not reader.schema.flat or sum(task.records for task in tasks) < MIN_REWRITTEN_ROWS:
        return None
    if any(task.deletes or task.data_format != "parquet" for task in tasks):
        return None
    if find_repeated_paths(files.removed) or find_repeated_paths(files.added):
        # Rows are told by their files here, and a file has its rows once.
        return None
    with_ids = keys.same == RowIdentity.ROW_ID
    names = reader.schema.names
    columns = to_arrow_schema(reader.schema.iceberg)
    if any(isinstance(field.type, pa.UuidType) for field in columns):
        return None
    key = [names.index(name) for name in keys.columns if name in names] or [
        place for place, field in enumerate(columns) if any(fits(field.type) for fits in _KEY_TYPES)
    ][:1]
    if not key or not all(any(fits(columns.field(place).type) for fits in _KEY_TYPES) for place in key):
        return None
    paths = [tuple(task.path for task in _sort_by_path(side)) for side in (files.removed, files.added)]
    first = {task.path: task.first_row_id for task in tasks} if with_ids else {}
    return RewrittenFiles(paths[0], paths[1], columns, tuple(key), reader.table.io_properties(), first)


def _sort_by_path(tasks: Sequence[FileScanTask]) -> list[FileScanTask]:
    return sorted(tasks, key=lambda task: task.path)


def _run_tasks(
    reader: TableReader, files: RewrittenFiles, count: int, work: Callable[..., Any], schema: pa.Schema
) -> DataFrame:
    slots = min(count, 4 * reader.spark.sparkContext.defaultParallelism)
    return reader.spark.range(0, count, 1, slots).mapInArrow(partial(work, files=files), from_arrow_schema(schema))


def _read_heads(batches: Iterator[pa.RecordBatch], files: RewrittenFiles) -> Iterator[pa.RecordBatch]:
    """Read the first keys of each row group of old files."""
    rows: list[dict[str, Any]] = []
    for number in _task_numbers(batches):
        opened = files.open_key(files.before[number])
        if opened is None:
            rows.append({"file": number, "row_group": 0, "heads": [], "readable": False})
            continue
        file, names = opened
        for group in range(file.num_row_groups):
            batch = next(file.iter_batches(_HEAD_ROWS, row_groups=[group], columns=names, use_threads=False), None)
            heads = [] if batch is None else pc.cast(combine_keys(batch, names), pa.string()).to_pylist()
            rows.append({"file": number, "row_group": group, "heads": heads, "readable": True})
    yield pa.RecordBatch.from_pylist(rows, _HEADS_SCHEMA)


def _find_matches(
    batches: Iterator[pa.RecordBatch], files: RewrittenFiles, known: Sequence[tuple[int, int, list[str]]]
) -> Iterator[pa.RecordBatch]:
    """Look for the first keys of old row groups in new files."""
    texts = [head for _, _, heads in known for head in heads]
    owners = [place for place, (_, _, heads) in enumerate(known) for _ in heads]
    rows: list[dict[str, Any]] = []
    for number in _task_numbers(batches):
        opened = files.open_key(files.after[number])
        if opened is None:
            rows.append({"readable": False})
            continue
        spans = _find_spans(*opened, texts, owners)
        rows += [
            {
                "before": known[owner][0],
                "row_group": known[owner][1],
                "after": number,
                "first_row": first,
                "last_row": last,
                "readable": True,
            }
            for owner, (first, last) in spans.items()
        ]
    yield pa.RecordBatch.from_pylist(rows, _MATCHES_SCHEMA)


def _find_spans(
    file: pq.ParquetFile, names: list[str], texts: list[str], owners: list[int]
) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    start = 0
    heads = None
    for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
        keys = combine_keys(batch, names)
        heads = pc.cast(pa.array(texts, pa.string()), keys.type) if heads is None else heads
        places = pc.index_in(keys, value_set=heads, skip_nulls=True)
        for row in pc.indices_nonzero(pc.is_valid(places)).to_pylist():
            owner, place = owners[places[row].as_py()], start + row
            first, _ = spans.get(owner, (place, place))
            spans[owner] = (first, place)
        start += batch.num_rows
    return spans


def _walk_rewrites(
    batches: Iterator[pa.RecordBatch], files: RewrittenFiles, groups: Sequence[FileRewrite]
) -> Iterator[pa.RecordBatch]:
    """Walk groups of files side by side; give what has no equal partner."""
    compared = tuple(column_name(place) for place in range(len(files.columns)))
    paths = (files.before, files.after)
    for number in _task_numbers(batches):
        group = groups[number]
        sides = (files.read_rows(files.before, group.before), files.read_rows(files.after, group.after))
        for side, rows in find_unequal_rows(*sides, files.rows_schema, files.combine_row_keys, compared):
            for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
                if batch.num_rows:
                    yield _finish_batch(batch, side, paths[side], len(compared))


def _finish_batch(batch: pa.RecordBatch, side: int, paths: Sequence[str], columns: int) -> pa.RecordBatch:
    count = batch.num_rows
    data = [_to_spark(array) for array in batch.columns[:columns]]
    file = pa.array(paths, pa.string()).take(batch.column(columns))
    arrays = [pa.repeat(pa.scalar(side, pa.int32()), count), *data, file, batch.column(columns + 1)]
    arrays.append(batch.column(columns + 2))
    names = [_SIDE, *(column_name(place) for place in range(columns)), FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _to_spark(array: pa.Array) -> pa.Array:
    """Turn types that Spark lacks into the numbers that carry them (`catalog.snapshot_schema`)."""
    if pa.types.is_time64(array.type) or (pa.types.is_timestamp(array.type) and array.type.unit == "ns"):
        return array.view(pa.int64())
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def _task_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
