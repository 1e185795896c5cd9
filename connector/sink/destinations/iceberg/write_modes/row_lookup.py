"""Keys of a batch -> where their rows are in the table; for write modes that look rows up.

Ranges of the keys leave out data files that cannot hold any of them (`keys.key_ranges`); of the others Iceberg's
readers give key columns, file and position of the live rows, and one join finds those of the batch's keys. What is
written then is the mode's own (`position_delete`, `copy_on_write`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import attrs
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.scan_planning import FileScanTask, plan_files
from connector.iceberg.read.table_reader import (
    FILE_COLUMN,
    POSITION_COLUMN,
    TableReader,
    column_name,
    release_reads,
)
from connector.iceberg.types.nested_columns import select_fields
from connector.iceberg.types.row_layout import RowLayout
from connector.iceberg.types.spark_types import to_spark
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.destinations.join_columns import column_aliases, key_column, spark_schema
from connector.sink.model import task_output
from connector.sink.model.driver_output import KeysToReplace, Written
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import KeyLookup
from connector.sink.model.task_output import OutputKind, TaskOutput, unpack_value

BROADCAST_KEYS, BROADCAST_BYTES = 1_000_000, 64 * 1024**2
"""Up to so many keys of a batch every executor gets them all (a broadcast join); more are joined by a shuffle."""

FILE_LABEL = "found"
"""Part of the names of files that a look-up writes."""

V3_FORMAT_VERSION = 3
"""The format version that has deletion vectors and row lineage."""


@attrs.frozen(eq=False)
class LookupScan:
    """A look-up as it is under way: the data files that may have rows of the keys, and a frame of the keys.

    `conflict_filter` is Iceberg's filter (JSON) that holds all keys.
    """

    spark: SparkSession
    table: Table
    plan: TablePlan
    files: Sequence[FileScanTask]
    keys: DataFrame
    ranges: KeyRanges
    tasks: int
    conflict_filter: str | None


def emit_keys(keys: Sequence[pa.Array], table: TablePlan) -> Iterator[TaskOutput]:
    """Yield keys that a task came across, and their ranges, for the driver's look-up."""
    names = list(table.layout.keys)
    ranges = KeyRanges.of(pa.RecordBatch.from_arrays(list(keys), names))
    yield TaskOutput.of(KeysToReplace(table.index, ranges))
    yield TaskOutput.of_keys(pa.RecordBatch.from_arrays([to_spark(key) for key in keys], names), table.index)


def collect_keys(spark: SparkSession, outputs: Sequence[TaskOutput]) -> KeyLookup:
    """Return the look-up of a few keys that the driver has as outputs of `emit_keys`."""
    told = (unpack_value(one.payload) for one in outputs if one.kind == OutputKind.DRIVER)
    ranges = KeyRanges.join(one.ranges for one in told if isinstance(one, KeysToReplace))
    keys = (one for one in outputs if one.kind == OutputKind.KEYS)
    rows = [(one.kind.value, one.table, one.bucket, one.payload) for one in keys]
    return KeyLookup([spark.createDataFrame(rows, task_output.OUTPUT_SCHEMA)], ranges)


def emit_files(descriptions: Iterator[FileDescription], index: int) -> Iterator[pa.RecordBatch]:
    """Yield the outputs of files that a task wrote."""
    for description in descriptions:
        yield task_output.to_batch([TaskOutput.of(Written(index, description))])


def find_rows(
    spark: SparkSession,
    table: Table,
    plan: TablePlan,
    lookup: KeyLookup,
    replace: Callable[[LookupScan], tuple[RowsToReplace, list[FileDescription]]],
) -> tuple[RowsToReplace, list[FileDescription]]:
    """Look for the data files of the keys' rows, and have `replace` write what takes the rows out.

    Raises:
        FatalError, RetriableError: the table's metadata cannot be read.
    """
    try:
        with raise_task_errors():
            conflict_filter = lookup.ranges.filter(plan.layout.schema)
            files = [] if plan.base is None else plan_files(spark, table, plan.base, conflict_filter)
            if not files:
                return RowsToReplace((), conflict_filter), []
            outputs = [frame.where(F.col("kind") == OutputKind.KEYS) for frame in lookup.outputs]
            keys = read_keys(reduce(DataFrame.unionAll, outputs), plan.layout, lookup.ranges)
            return replace(LookupScan(spark, table, plan, files, keys, lookup.ranges, lookup.tasks, conflict_filter))
    finally:
        release_reads(spark, table)


def match_rows(scan: LookupScan) -> DataFrame:
    """Return file and position of the live rows that have one of the keys."""
    layout, condition = scan.plan.layout, F.lit(True)
    for live, key in zip(*(column_aliases(side, len(layout.keys)) for side in ("live", "key")), strict=True):
        condition = condition & (F.col(live) == F.col(key))
    return _read_live_keys(scan).join(scan.keys, condition, "left_semi").select(FILE_COLUMN, POSITION_COLUMN)


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


def read_keys(outputs: DataFrame, layout: RowLayout, ranges: KeyRanges) -> DataFrame:
    """Return the key columns (called `column_aliases("key")`) in outputs of keys; few are sent to every executor."""
    names = column_aliases("key", len(layout.keys))
    schema = spark_schema([field.type for field in layout.key_fields], names)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                yield task_output.unpack_keys(payload.as_buffer()).rename_columns(names)

    keys = outputs.select("payload").mapInArrow(task, schema)
    few = ranges.count <= BROADCAST_KEYS and ranges.size_bytes <= BROADCAST_BYTES
    return F.broadcast(keys) if few else keys
