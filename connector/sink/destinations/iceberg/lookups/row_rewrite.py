"""Looked-up rows -> files that replace them.

Shared by tombstones (`lookups.tombstones`) and updates without all their values (`lookups.unavailable_values`): both
look rows up by key in one join, and write new rows in place of the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write_modes.registry import remove_rows
from connector.sink.destinations.iceberg.write_modes.row_lookup import emit_files
from connector.sink.model import task_output
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import Task


def rewrite_task(table: TablePlan, label: str, rows: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Task:
    """Return the task that rewrites rows in place of those with their keys: frames of `rows`' columns -> outputs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(file_layout(table), label)
        for batch in batches:
            written = rows(batch)
            writer.write_rows(written)
            for output in remove_rows(writer, written, table):
                yield task_output.to_batch([output])
        yield from emit_files(writer.close(), table.index)

    return task
