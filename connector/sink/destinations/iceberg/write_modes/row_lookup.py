"""Keys of a batch -> the rows that the table holds under them -> files that do without those rows.

For tables whose replaced rows do not go by equality deletes. Ranges of the keys leave out data files that cannot hold
any of them (`keys.key_ranges`); of the others Iceberg's readers give key columns, file and position of the
rows that live, and one join finds those of the batch's keys. Then, by write mode:

position-delete  places by data file -> position deletes or deletion vectors (`write.position_deletes`)
copy-on-write    data files with such rows -> their other rows in new files
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import attrs
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.scan_planning import FileScanTask, plan_files
from connector.iceberg.read.table_reader import (
    FILE_COLUMN,
    POSITION_COLUMN,
    ROW_ID_COLUMN,
    SEQUENCE_COLUMN,
    TableReader,
    column_name,
    release_reads,
)
from connector.iceberg.types.nested_columns import read_batch, select_fields
from connector.iceberg.types.spark_types import from_spark
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeleteWriter
from connector.iceberg.write.table_writer import TableWriter
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.destinations.iceberg.lookups.snapshot_rows import (
    column_aliases,
    key_column,
    key_condition,
    read_all_columns,
    readable_schema,
    spark_schema,
)
from connector.sink.model import task_output
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import KeyLookup
from connector.sink.model.task_output import Task, TaskOutput

BROADCAST_KEYS, BROADCAST_BYTES = 1_000_000, 64 * 1024**2
"""Up to so many keys of a batch every executor gets them all (a broadcast join); more are joined by a shuffle."""

FILE_LABEL = "found"
_VECTORS_VERSION = 3


def find_rows_to_replace(
    spark: SparkSession, table: Table, plan: TablePlan, asked: KeyLookup
) -> tuple[RowsToReplace, list[bytes]]:
    """Find rows by their keys and write files without them; give the files' descriptions.

    Raises:
        FatalError, RetriableError: the table's metadata cannot be read.
    """
    try:
        with raise_task_errors():
            return _find_rows(spark, table, plan, asked)
    finally:
        release_reads(spark, table)


def _find_rows(
    spark: SparkSession, table: Table, plan: TablePlan, asked: KeyLookup
) -> tuple[RowsToReplace, list[bytes]]:
    where = asked.ranges.filter(plan.layout.schema)
    scanned = [] if plan.base is None else plan_files(spark, table, plan.base, where)
    if not scanned:
        return RowsToReplace(where=where), []
    frames = [frame.where(F.col("kind") == task_output.KEYS) for frame in asked.parcelled]
    keys = read_keys(reduce(DataFrame.unionAll, frames), plan.layout, asked.ranges)
    if plan.write_mode == "copy-on-write":
        return _copy_on_write(spark, table, plan, scanned, keys, asked.ranges)
    places = {task.path: task.place for task in scanned}
    hits = _match_rows(_read_live_keys(spark, table, plan.layout, scanned), keys, plan.layout)
    work = _position_delete_task(plan, places, as_vectors=table.format_version >= _VECTORS_VERSION)
    made = (
        hits.repartition(asked.tasks, FILE_COLUMN)
        .sortWithinPartitions(FILE_COLUMN)
        .mapInArrow(work, task_output.OUTPUT_SCHEMA)
    )
    files = [bytes(row.payload) for row in made.collect()]
    named = {orjson.loads(file)["referenced-data-file"] for file in files}
    return RowsToReplace([task for task in scanned if task.path in named], where=where), files


def _read_live_keys(
    spark: SparkSession, table: Table, layout: TableLayout, scanned: Sequence[FileScanTask]
) -> DataFrame:
    """Give the key columns and place of every row that lives; a schema of keys only is one that Spark can read."""
    document = orjson.loads(layout.schema_json)
    schema = SnapshotSchema(
        orjson.dumps({**document, "fields": select_fields(document["fields"], layout.key_paths)}).decode()
    )
    names = {name: column_name(place) for place, name in enumerate(schema.names)}
    live = TableReader(spark, table, schema).live(scanned)
    keys = zip(layout.key_paths, column_aliases("live", len(layout.keys)), strict=True)
    return live.select(*(key_column(names, path).alias(name) for path, name in keys), FILE_COLUMN, POSITION_COLUMN)


def read_keys(parcelled: DataFrame, layout: TableLayout, ranges: KeyRanges) -> DataFrame:
    """Give the key columns (`key`, see `held.aliases`) in parcels of keys; few are sent to every executor."""
    names = column_aliases("key", len(layout.keys))
    made = spark_schema([field.type for field in layout.key_fields], names)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                yield task_output.unpack_keys(payload.as_buffer()).rename_columns(names)

    keys = parcelled.select("payload").mapInArrow(task, made)
    few = ranges.count <= BROADCAST_KEYS and ranges.size_bytes <= BROADCAST_BYTES
    return F.broadcast(keys) if few else keys


def _match_rows(live: DataFrame, keys: DataFrame, layout: TableLayout) -> DataFrame:
    condition = F.lit(True)
    for own, key in zip(*(column_aliases(side, len(layout.keys)) for side in ("live", "key")), strict=True):
        condition = condition & (F.col(own) == F.col(key))
    return live.join(keys, condition, "left_semi").select(FILE_COLUMN, POSITION_COLUMN)


def _position_delete_task(plan: TablePlan, places: dict[str, DataFileDeletes], *, as_vectors: bool) -> Task:
    """Give the task that deletes places, sorted by file: frames of them -> parcels of files."""
    layout, index = plan.layout, plan.index

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = PositionDeleteWriter(layout, FILE_LABEL, places, as_vectors=as_vectors)
        for batch in batches:
            yield from _emit_files(writer.take(*batch.columns), index)
        yield from _emit_files(writer.close(), index)

    return task


def _emit_files(descriptions: Iterator[bytes], index: int) -> Iterator[pa.RecordBatch]:
    for description in descriptions:
        yield task_output.to_batch([TaskOutput(task_output.FILE, description, index)])


def _copy_on_write(
    spark: SparkSession,
    table: Table,
    plan: TablePlan,
    scanned: Sequence[FileScanTask],
    keys: DataFrame,
    ranges: KeyRanges,
) -> tuple[RowsToReplace, list[bytes]]:
    """Rewrite the data files that have rows of the keys; what stays is written under the present schema and spec."""
    live = _read_live_keys(spark, table, plan.layout, scanned)
    hit = {row[0] for row in _match_rows(live, keys, plan.layout).select(FILE_COLUMN).distinct().collect()}
    touched = [task for task in scanned if task.path in hit]
    if not touched:
        return RowsToReplace(where=ranges.filter(plan.layout.schema)), []
    schema = readable_schema(plan.layout.schema_json)
    lineage = table.format_version >= _VECTORS_VERSION
    rows = TableReader(spark, table, schema).live(touched, lineage=lineage)
    names = {name: column_name(place) for place, name in enumerate(schema.names)}
    condition = key_condition(names, plan.layout, column_aliases("key", len(plan.layout.keys)))
    also = (ROW_ID_COLUMN, SEQUENCE_COLUMN) if lineage else ()
    staying = rows.join(keys, condition, "left_anti").select(*names.values(), FILE_COLUMN, POSITION_COLUMN, *also)
    made = staying.mapInArrow(_rewrite_task(plan, names, also), task_output.OUTPUT_SCHEMA).collect()
    files = [bytes(row.payload) for row in made if row.kind == task_output.FILE]
    seen = KeyRanges.joined(
        [ranges, *(task_output.unpack_value(row.payload) for row in made if row.kind == task_output.KEY_RANGES)]
    )
    # A delete of any row of a file that was rewritten must not be lost, whatever its key.
    return RowsToReplace(touched, rewritten=True, where=seen.filter(plan.layout.schema)), files


def _rewrite_task(plan: TablePlan, names: dict[str, str], also: Sequence[str]) -> Task:
    """Give the task that writes rows anew as they are, with their lineage: frames of rows -> parcels of files."""
    layout, index = plan.layout, plan.index
    written = with_lineage(layout) if also else layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer, ranges = TableWriter(written, FILE_LABEL), KeyRanges()
        for batch in batches:
            columns = list(read_all_columns(layout, batch, names, (FILE_COLUMN, POSITION_COLUMN)).values())
            columns += [from_spark(batch.column(name), pa.int64()) for name in also]
            rows = pa.RecordBatch.from_arrays(columns, schema=written.columns)
            writer.rows(rows)
            ranges = KeyRanges.joined([ranges, KeyRanges.of(read_batch(rows, layout.keys))])
        yield task_output.to_batch([TaskOutput.of(task_output.KEY_RANGES, ranges, index)])
        yield from _emit_files(writer.close(), index)

    return task


def with_lineage(layout: TableLayout) -> TableLayout:
    """Give the layout of data files that keep the rows' ids and sequence numbers (spec, "Row Lineage")."""
    document = orjson.loads(layout.schema_json)
    own = [
        {"id": 2147483540, "name": "_row_id", "required": False, "type": "long"},
        {"id": 2147483539, "name": "_last_updated_sequence_number", "required": False, "type": "long"},
    ]
    return attrs.evolve(layout, schema_json=orjson.dumps({**document, "fields": document["fields"] + own}).decode())
