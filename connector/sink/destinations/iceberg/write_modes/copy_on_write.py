"""Write mode copy-on-write: data files with rows of the keys -> their other rows in new files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.all_columns import complete_rows, readable_schema
from connector.iceberg.read.frame_columns import ROW_ID_COLUMN, column_name
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.nested_columns import read_batch
from connector.iceberg.write.row_lineage import with_lineage
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.row_search.base import FileRows, FileRowsTask, LookupScan, read_keys
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.destinations.iceberg.write_modes.row_lookup import (
    FILE_LABEL,
    RowLookupMode,
    emit_files,
    find_rows,
    search_rows,
)
from connector.sink.destinations.join_columns import column_aliases, key_condition
from connector.sink.model import task_output
from connector.sink.model.driver_output import FilesFound, KeysToReplace
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult, KeyLookup
from connector.sink.model.task_output import Task, TaskOutput, unpack_value


class CopyOnWrite(RowLookupMode):
    """Rewrites data files: no delete files, so readers have nothing to apply; works with any format version."""

    min_format_version = 1

    def find_rows(
        self, spark: SparkSession, table: Table, plan: TablePlan, lookup: KeyLookup
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        """Find the data files that have such rows, and rewrite each without them."""
        return find_rows(spark, table, plan, lookup, _rewrite_files)

    def apply(self, update: Any, rows: RowsToReplace) -> None:
        """Remove the rewritten files from the table; refused if another writer deleted rows in them meanwhile."""
        update.validateNoConflictingDeleteFiles()
        for task in rows.affected_files:
            update.removeRows(task.java().file())


def _rewrite_files(scan: LookupScan) -> tuple[RowsToReplace, list[FileDescription]]:
    """Rewrite the data files that have rows of the keys, under the present schema and spec."""
    plan, table = scan.plan, scan.table
    hit = set(search_rows(scan, _tell_files(plan.index)).files_found)
    affected = [task for task in scan.files if task.path in hit]
    if not affected:
        return RowsToReplace((), scan.conflict_filter), []
    schema = readable_schema(plan.layout.schema_json)
    # None is read from ORC files: rows that are rewritten from them get new ids.
    lineage = table.has_row_ids and all(task.row_ids_readable for task in affected)
    rows = TableReader(scan.spark, table, schema).read_live_rows(affected, lineage=lineage)
    names = {name: column_name(place) for place, name in enumerate(schema.names)}
    condition = key_condition(names, plan.layout, column_aliases("key", len(plan.layout.keys)))
    staying = rows.join(read_keys(scan.outputs, plan.layout, scan.ranges), condition, "left_anti")
    if not lineage:
        # To name what stays instead takes two calls of Java's for each of the table's columns.
        staying = staying.drop(ROW_ID_COLUMN)
    outputs = staying.mapInArrow(_rewrite_task(plan, names, lineage=lineage), task_output.OUTPUT_SCHEMA).collect()
    result = JobResult().add(unpack_value(row.payload) for row in outputs)
    files: list[FileDescription] = result.written.get(plan.index, [])
    ranges = KeyRanges.join([scan.ranges, *result.key_ranges.get(plan.index, ())])
    # A delete of any row of a file that was rewritten must not be lost, whatever its key.
    return RowsToReplace(affected, ranges.filter(plan.layout.schema)), files


def _tell_files(index: int) -> FileRowsTask:
    """Return a task that reports the files of the rows to replace."""

    def task(files: Iterator[FileRows]) -> Iterator[pa.RecordBatch]:
        paths = tuple(file.path for file in files)
        if paths:
            yield task_output.to_batch([TaskOutput.of(FilesFound(index, paths))])

    return task


def _rewrite_task(plan: TablePlan, names: dict[str, str], *, lineage: bool) -> Task:
    """Return the task that rewrites rows as they are, with their lineage: frames of rows -> FILE outputs."""
    layout, index = file_layout(plan), plan.index
    written = with_lineage(layout) if lineage else layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer, ranges = TableWriter(written, FILE_LABEL), KeyRanges()
        for batch in batches:
            rows = complete_rows(layout, written, batch, names)
            writer.write_rows(rows)
            ranges = KeyRanges.join([ranges, KeyRanges.of(read_batch(rows, layout.keys))])
        yield task_output.to_batch([TaskOutput.of(KeysToReplace(index, ranges))])
        yield from emit_files(writer.close(), index)

    return task


MODE: WriteMode = CopyOnWrite()
