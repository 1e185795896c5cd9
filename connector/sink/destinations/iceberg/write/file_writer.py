"""Folded changes -> rows of a table, and the removal of the rows that they replace. On executors.

Each key that is left has its rows replaced, by one row or, with a hard delete, by none. A create is an upsert too,
because a redelivered create must not duplicate a row. Only keys that the table provably does not hold need no removal.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.write_modes.registry import remove_rows
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, gather
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import TaskOutput
from serde.arrays import Mask


def write_append(writer: TableWriter, part: ChangeBatch, table: TablePlan) -> None:
    """Write every event that has a row."""
    writer.write_rows(_with_table_schema(part.rows, table.layout.columns))


def write_upserts(writer: TableWriter, folded: FoldedChanges, table: TablePlan) -> Iterator[TaskOutput]:
    """Write the winners' rows, and remove the rows that the table may hold under their keys (`remove_rows`)."""
    deleted = np.concatenate([part.deleted for part in folded.parts])
    is_deleted = deleted[folded.winners]
    if table.keep_deletes:
        _write_soft_deletes(writer, folded, is_deleted, table)
        replaced = folded.winners[folded.images >= 0]
    else:
        _write_rows(writer, gather(folded.parts, folded.winners[~is_deleted]), table)
        replaced = folded.winners
    for part in gather(folded.parts, replaced):
        yield from remove_rows(writer, part.rows, table)


def _write_soft_deletes(writer: TableWriter, folded: FoldedChanges, is_deleted: Mask, table: TablePlan) -> None:
    """Write the last known row of every key, marked deleted if the key is."""
    known = folded.images >= 0
    rows = folded.images[known]
    sequence = np.argsort(rows)
    marks = is_deleted[known][sequence]
    start = 0
    for part in gather(folded.parts, rows[sequence]):
        stop = start + len(part)
        _write_rows(writer, [_mark_if_deleted(part, marks[start:stop])], table)
        start = stop


def _mark_if_deleted(part: ChangeBatch, is_deleted: Mask) -> ChangeBatch:
    return attrs.evolve(part, rows=mark_deleted(part.rows, is_deleted)) if is_deleted.any() else part


def _write_rows(writer: TableWriter, parts: list[ChangeBatch], table: TablePlan) -> None:
    for part in parts:
        writer.write_rows(_with_table_schema(part.rows, table.layout.columns))


def _with_table_schema(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the rows under the table's own schema, required columns and field ids included."""
    return pa.RecordBatch.from_arrays(rows.columns, schema=columns)
