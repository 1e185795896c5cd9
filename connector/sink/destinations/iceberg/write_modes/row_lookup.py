"""Keys of a batch -> where their rows are in the table; for write modes that look rows up.

Ranges of the keys leave out data files that cannot hold any of them (`keys.key_ranges`); in the others a search finds
the live rows of the batch's keys (`row_search`). What is written then is the mode's own (`position_delete`,
`copy_on_write`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import release_reads
from connector.iceberg.types.values.spark_types import to_spark
from connector.iceberg.write.table_writer import TableWriter
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.destinations.iceberg.row_search.base import FileRowsTask, LookupScan
from connector.sink.destinations.iceberg.row_search.registry import ROW_SEARCHES
from connector.sink.destinations.iceberg.write_modes.key_types import find_lookup_fault
from connector.sink.model import task_output
from connector.sink.model.driver_output import KeysToReplace, Written
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult, KeyLookup
from connector.sink.model.task_output import OutputKind, TaskOutput, unpack_value

FILE_LABEL = "found"
"""Part of the names of files that a look-up writes."""


class RowLookupMode:
    """What write modes have in common that look up the rows they replace (a part of `WriteMode`)."""

    looks_up_rows = True
    writes_equality_deletes = False

    def find_key_fault(self, columns: pa.Schema, keys: Sequence[str]) -> str | None:
        """Say why Spark cannot look rows up by this key."""
        return find_lookup_fault(columns, keys)

    def remove_rows(self, writer: TableWriter, keys: Sequence[pa.Array], table: TablePlan) -> Iterator[TaskOutput]:  # noqa: ARG002
        """Yield the keys: rows are looked up when all keys are known."""
        return emit_keys(keys, table)


def emit_keys(keys: Sequence[pa.Array], table: TablePlan) -> Iterator[TaskOutput]:
    """Yield keys that a task came across, and their ranges, for the driver's look-up."""
    names = list(table.layout.keys)
    ranges = KeyRanges.of(pa.RecordBatch.from_arrays(list(keys), names))
    yield TaskOutput.of(KeysToReplace(table.index, ranges))
    yield TaskOutput.of_keys(pa.RecordBatch.from_arrays([to_spark(key) for key in keys], names), table.index)


def collect_keys(spark: SparkSession, outputs: Sequence[TaskOutput]) -> KeyLookup:
    """Return the look-up of a few keys that the driver has as outputs of `emit_keys`."""
    driver_outputs = (unpack_value(one.payload) for one in outputs if one.kind == OutputKind.DRIVER)
    ranges = KeyRanges.join(one.ranges for one in driver_outputs if isinstance(one, KeysToReplace))
    keys = (one for one in outputs if one.kind == OutputKind.KEYS)
    rows = [(one.kind.value, one.table, one.bucket, one.payload) for one in keys]
    return KeyLookup([spark.createDataFrame(rows, task_output.OUTPUT_SCHEMA)], ranges)


def emit_files(descriptions: Iterator[FileDescription], index: int) -> Iterator[pa.RecordBatch]:
    """Yield the outputs of files that a task wrote."""
    for description in descriptions:
        yield task_output.to_batch([TaskOutput.of(Written(index, description))])


def search_rows(scan: LookupScan, work: FileRowsTask) -> JobResult:
    """Find the live rows of the keys in the way that is configured, and have tasks do `work` with them."""
    return ROW_SEARCHES[scan.plan.row_lookup.name].run(scan, work)


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
            keys = reduce(DataFrame.unionAll, outputs)
            return replace(LookupScan(spark, table, plan, files, keys, lookup.ranges, lookup.tasks, conflict_filter))
    finally:
        release_reads(spark, table)
