"""Rewritten Parquet files -> the rows that changed, by walking old and new files side by side. Jobs of Arrow batches.

Three jobs: the first keys of each old row group; where these are in the new files (key columns only); then the walk
itself, a task per group of files that went into each other. Files are read as they are, so this way is taken only where
their columns are exactly the snapshot's; anything else goes by digests or by lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.read.scan_planning import FileChanges, FileScanTask
from connector.iceberg.read.table_reader import (
    FILE_COLUMN,
    POSITION_COLUMN,
    ROW_ID_COLUMN,
    ROW_ID_FIELD_ID,
    TableReader,
    column_name,
)
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema
from connector.source.changes.rewrites.file_alignment import FileRewrite, RowGroupMatch, group_rewrites, is_in_order
from connector.source.changes.rewrites.row_alignment import AFTER, BEFORE, find_unequal_rows
from connector.source.changes.row_key import RowIdentity, RowKey

MIN_REWRITTEN_ROWS = 200_000
"""Below this the three jobs cost more than they save."""

BATCH_ROWS = 1 << 16
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


@attrs.frozen
class RewrittenFiles:
    """What executors need to read files side by side; `first_row_ids` by path, where rows are to have their ids."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    columns: pa.Schema
    key: tuple[int, ...]
    io_properties: dict[str, str]
    first_row_ids: dict[str, int | None] = attrs.field(factory=dict)

    def open(self, path: str) -> tuple[pq.ParquetFile, list[str]] | None:
        """Open a file; give the names there of all columns, None where it is not read as it is.

        Asked of every column by every job: a file that the walk cannot read has to be known before it.
        """
        file = pq.ParquetFile(file_io_for(self.io_properties, path).new_input(path).open())
        ids = {field.metadata.get(b"PARQUET:field_id"): field for field in file.schema_arrow if field.metadata}
        names = []
        for wanted in self.columns:
            found = ids.get(wanted.metadata[b"PARQUET:field_id"])
            if found is None or _storage_type(found.type) != _storage_type(wanted.type):
                return None
            names.append(found.name)
        return file, names

    def open_key(self, path: str) -> tuple[pq.ParquetFile, list[str]] | None:
        """The same, with the names of the key columns only."""
        opened = self.open(path)
        return None if opened is None else (opened[0], [opened[1][place] for place in self.key])

    def row_ids(self, path: str, batch: pa.RecordBatch, place: str | None, start: int) -> pa.Array:
        """Return the ids of rows from `start` on: those that the file holds, else counted from its first (spec)."""
        first = self.first_row_ids.get(path)
        if first is None:
            return pa.nulls(batch.num_rows, pa.int64())
        counted = pa.array(np.arange(first + start, first + start + batch.num_rows, dtype=np.int64))
        return counted if place is None else pc.coalesce(batch.column(place), counted)


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
    seen = _run_tasks(reader, plan, len(plan.after), partial(_find_matches, known=known), _MATCHES_SCHEMA).collect()
    if not all(row.readable for row in seen):
        return None
    sightings = [
        RowGroupMatch(r.before, r.row_group, r.after, r.first_row, r.last_row) for r in seen if r.before is not None
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
            heads = [] if batch is None else pc.cast(_combine_keys(batch, names), pa.string()).to_pylist()
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
        keys = _combine_keys(batch, names)
        heads = pc.cast(pa.array(texts, pa.string()), keys.type) if heads is None else heads
        found = pc.index_in(keys, value_set=heads, skip_nulls=True)
        for row in pc.indices_nonzero(pc.is_valid(found)).to_pylist():
            owner, place = owners[found[row].as_py()], start + row
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
        sides = (_read_rows(files, files.before, group.before), _read_rows(files, files.after, group.after))
        shape = _rows_schema(files)
        for side, rows in find_unequal_rows(sides[0], sides[1], shape, partial(_row_keys, files=files), compared):
            for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
                if batch.num_rows:
                    yield _finish_batch(batch, side, paths[side], len(compared))


def _read_rows(files: RewrittenFiles, paths: Sequence[str], numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Read files one after the other as columns `c0`, ..., the file's number, the row's position and its id."""
    shape = _rows_schema(files)
    for number in numbers:
        opened = files.open(paths[number])
        if opened is None:
            raise ValueError(f"file {paths[number]} has other columns than when it was planned")
        file, names = opened
        held = _row_id_column(file) if files.first_row_ids else None
        start = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=[*names, *([held] if held else [])], use_threads=False):
            arrays = [_to_storage(batch.column(name)) for name in names]
            at = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
            ids = files.row_ids(paths[number], batch, held, start)
            arrays += [pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows), at, ids]
            yield pa.RecordBatch.from_arrays(arrays, schema=shape)
            start += batch.num_rows


def _finish_batch(batch: pa.RecordBatch, side: int, paths: Sequence[str], columns: int) -> pa.RecordBatch:
    count = batch.num_rows
    data = [_to_spark(array) for array in batch.columns[:columns]]
    file = pa.array(paths, pa.string()).take(batch.column(columns))
    arrays = [pa.repeat(pa.scalar(side, pa.int32()), count), *data, file, batch.column(columns + 1)]
    arrays.append(batch.column(columns + 2))
    names = [_SIDE, *(column_name(place) for place in range(columns)), FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _row_keys(table: pa.Table, files: RewrittenFiles) -> pa.Array:
    names = [column_name(place) for place in files.key]
    return _combine_keys(table, names)


def _combine_keys(rows: pa.RecordBatch | pa.Table, names: list[str]) -> pa.Array:
    """Return one array that tells keys apart: the column itself, or the texts of several."""
    arrays = [rows.column(name) for name in names]
    if len(arrays) == 1:
        whole = arrays[0]
    else:
        texts = [pc.fill_null(pc.cast(array, pa.string()), "\0") for array in arrays]
        whole = pc.binary_join_element_wise(*texts, "\x1f")
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def _rows_schema(files: RewrittenFiles) -> pa.Schema:
    fields = [pa.field(column_name(place), _storage_type(field.type)) for place, field in enumerate(files.columns)]
    extra = [
        pa.field(FILE_COLUMN, pa.int32()),
        pa.field(POSITION_COLUMN, pa.int64()),
        pa.field(ROW_ID_COLUMN, pa.int64()),
    ]
    return pa.schema([*fields, *extra])


def _row_id_column(file: pq.ParquetFile) -> str | None:
    """The name of the column of row ids; None in files whose rows are all counted."""
    wanted = str(ROW_ID_FIELD_ID).encode()
    fields = (field for field in file.schema_arrow if field.metadata)
    return next((field.name for field in fields if field.metadata.get(b"PARQUET:field_id") == wanted), None)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that stands for all that hold the same values."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _to_storage(array: pa.Array) -> pa.Array:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    return storage if storage.type == _storage_type(storage.type) else storage.cast(_storage_type(storage.type))


def _to_spark(array: pa.Array) -> pa.Array:
    """Turn types that Spark lacks into the numbers that carry them (`catalog.snapshot_schema`)."""
    if pa.types.is_time64(array.type) or (pa.types.is_timestamp(array.type) and array.type.unit == "ns"):
        return array.view(pa.int64())
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def _task_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
