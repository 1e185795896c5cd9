"""Rows from before a truncate -> the same, marked deleted (soft delete), and the removal of the old ones.

One job over the table's own rows: executors read, mark and write them; the driver gets only files and keys. Rows that
are already marked are not changed, so running it twice has no further effect.
"""

from __future__ import annotations

from contextlib import ExitStack

import attrs
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.all_columns import read_all_columns
from connector.iceberg.read.table_reader import release_reads
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.destinations.iceberg.lookups.row_rewrite import rewrite_task
from connector.sink.destinations.iceberg.snapshot_rows import read_table_rows
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.join_columns import TableRows
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult, KeyLookup
from connector.sink.model.task_output import OUTPUT_SCHEMA, OutputKind, unpack_value
from serde.events.changes import DELETED_COLUMN

FILE_LABEL = "truncated"


@attrs.frozen
class TruncatedRows:
    """Which rows a truncate affects: those whose column (a number) is not above a value, `until`; None for all.

    `source_columns` has text columns, and the values in them that identify the truncated source; empty for rows of any
    source.
    """

    until: tuple[str, int] | None = None
    source_columns: tuple[tuple[str, str], ...] = ()


def write_marked_rows(
    spark: SparkSession, table: Table, plan: TablePlan, which: TruncatedRows, kept: ExitStack
) -> JobResult:
    """Write the rows that a truncate marks deleted; return their files, and the keys whose old rows are to be removed.

    Args:
        spark: the session.
        table: what it holds at the plan's snapshot is read.
        plan: of the table.
        which: the rows.
        kept: closes what the outputs are read from.
    """
    # What runs on executors must not hold `table_rows`: frames cannot be sent.
    kept.callback(release_reads, spark, table)
    table_rows = read_table_rows(spark, table, plan)
    layout, names, place = file_layout(plan), table_rows.names, table_rows.place

    def marked(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = read_all_columns(layout, batch, names, place)
        return mark_deleted(pa.RecordBatch.from_arrays(list(columns.values()), schema=layout.columns))

    rows = _select(table_rows, which).select(*names.values(), *place)
    outputs = rows.mapInArrow(rewrite_task(plan, FILE_LABEL, marked), OUTPUT_SCHEMA)
    # A look-up reads the keys; computed again, they would come with other files.
    outputs = outputs.persist(StorageLevel.MEMORY_AND_DISK)
    kept.callback(outputs.unpersist)
    with raise_task_errors():
        collected = outputs.where(F.col("kind") == OutputKind.DRIVER.value).collect()
    result = JobResult().add(unpack_value(row.payload) for row in collected)
    ranges = KeyRanges.join(result.key_ranges.get(plan.index, ()))
    if ranges.count:
        tasks = int(spark.sparkContext.defaultParallelism)
        result.key_lookups[plan.index] = KeyLookup([outputs], ranges, tasks)
    return result


def _select(table_rows: TableRows, which: TruncatedRows) -> DataFrame:
    """Return the live rows that a truncate affects."""
    names = table_rows.names
    is_marked = F.coalesce(F.col(names[DELETED_COLUMN]).cast("string"), F.lit("false"))
    rows = table_rows.live_rows.where(~is_marked.eqNullSafe("true"))
    if which.until is not None:
        column = F.col(names[which.until[0]])
        rows = rows.where(column.isNull() | (column <= which.until[1]))
    for name, value in which.source_columns:
        rows = rows.where(F.col(names[name]) == F.lit(value))
    return rows
