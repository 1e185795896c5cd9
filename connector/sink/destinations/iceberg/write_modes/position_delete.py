"""Write mode position-delete: rows found by key -> position delete files (format 2) or deletion vectors (format 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import VECTORS_VERSION, Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeleteWriter
from connector.sink.destinations.iceberg.row_search.base import FileRows, FileRowsTask, LookupScan
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.destinations.iceberg.write_modes.row_lookup import (
    FILE_LABEL,
    RowLookupMode,
    emit_files,
    find_rows,
    search_rows,
)
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import KeyLookup


class PositionDelete(RowLookupMode):
    """Deletes by data file and position: readers skip rows, and need no join."""

    min_format_version = 2

    def find_rows(
        self, spark: SparkSession, table: Table, plan: TablePlan, lookup: KeyLookup
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        """Find the rows' positions, and write delete files of them."""
        return find_rows(spark, table, plan, lookup, _delete_positions)

    def apply(self, update: Any, rows: RowsToReplace) -> None:
        """Remove the vectors that the new ones replace.

        Checks that no compaction moved the deleted rows. If two writers add vectors for one data file, Iceberg itself
        refuses.
        """
        update.validateDataFilesExist([task.path for task in rows.affected_files])
        for task in rows.affected_files:
            if any(delete.alone for delete in task.place.deletes):
                for delete in task.java().deletes():
                    if delete.referencedDataFile() is not None:
                        update.removeDeletes(delete)


def _delete_positions(scan: LookupScan) -> tuple[RowsToReplace, list[FileDescription]]:
    places = {task.path: task.place for task in scan.files}
    task = _delete_task(scan.plan, places, as_vectors=scan.table.format_version >= VECTORS_VERSION)
    result = search_rows(scan, task)
    files: list[FileDescription] = result.written.get(scan.plan.index, [])
    affected = {file.referenced_data_file for file in files}
    return RowsToReplace([task for task in scan.files if task.path in affected], scan.conflict_filter), files


def _delete_task(plan: TablePlan, places: dict[str, DataFileDeletes], *, as_vectors: bool) -> FileRowsTask:
    """Return the task that writes delete files: positions by file -> outputs."""
    layout, index = file_layout(plan), plan.index

    def task(files: Iterator[FileRows]) -> Iterator[pa.RecordBatch]:
        writer = PositionDeleteWriter(layout, FILE_LABEL, places, as_vectors=as_vectors)
        for file in files:
            yield from emit_files(writer.add(file.path, file.positions), index)
        yield from emit_files(writer.close(), index)

    return task


MODE: WriteMode = PositionDelete()
