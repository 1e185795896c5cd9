"""Folded changes -> rows of a table, and what takes the rows before them out. On executors.

Each surviving key has its rows replaced, by one row or, with a hard delete, by none. A create is an upsert too: a
redelivered create must not double a row. Only keys that the table provably does not hold have nothing to replace.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.keys.key_bounds import KnownKeys
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import columns_of
from connector.iceberg.types.spark_types import to_spark
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.convert.decoder import DELETED
from connector.sink.model import task_output
from connector.sink.model.change_rows import Folded, Part, gather
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import Parcel
from serde.arrays import Ints, Mask


def write_append(writer: TableWriter, part: Part, table: TablePlan) -> None:
    """Write every event that has a row."""
    writer.rows(_strict(part.rows, table.layout.columns))


def write_upserts(writer: TableWriter, folded: Folded, table: TablePlan) -> Iterator[Parcel]:
    """Write the winners' rows; the rows that the table may hold under their keys go (`replace`)."""
    deleted = np.concatenate([part.deleted for part in folded.parts])
    gone = deleted[folded.winners]
    if table.keep_deletes:
        _write_soft(writer, folded, gone, table)
        replaced = folded.winners[folded.images >= 0]
    else:
        _write_rows(writer, gather(folded.parts, folded.winners[~gone]), table)
        replaced = folded.winners
    for part in gather(folded.parts, replaced):
        yield from replace(writer, part.rows, table)


def _write_soft(writer: TableWriter, folded: Folded, gone: Mask, table: TablePlan) -> None:
    """Write the last known row of every key, marked where the key is gone."""
    known = folded.images >= 0
    rows = folded.images[known]
    sequence = np.argsort(rows)
    marks = gone[known][sequence]
    start = 0
    for part in gather(folded.parts, rows[sequence]):
        stop = start + len(part)
        _write_rows(writer, [_marked(part, marks[start:stop])], table)
        start = stop


def _marked(part: Part, gone: Mask) -> Part:
    return attrs.evolve(part, rows=mark_deleted(part.rows, gone)) if gone.any() else part


def mark_deleted(rows: pa.RecordBatch, gone: Mask | None = None) -> pa.RecordBatch:
    """Set `__deleted` of the rows in `gone`, or of all; a table without that column keeps its rows as they are."""
    position = rows.schema.get_field_index(DELETED)
    if position < 0:
        return rows
    field = rows.schema.field(position)
    true = pa.scalar(True if pa.types.is_boolean(field.type) else "true", field.type)
    mask = pa.array(np.ones(rows.num_rows, np.bool_) if gone is None else gone)
    return rows.set_column(position, field, pc.if_else(mask, true, rows.column(position)))


def _write_rows(writer: TableWriter, parts: list[Part], table: TablePlan) -> None:
    for part in parts:
        writer.rows(_strict(part.rows, table.layout.columns))


def _strict(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Give the rows under the table's own schema, required columns and field ids included."""
    return pa.RecordBatch.from_arrays(rows.columns, schema=columns)


def replace(writer: TableWriter, rows: pa.RecordBatch, table: TablePlan) -> Iterator[Parcel]:
    """See to it that rows which the table may hold under the keys of these go.

    By equality deletes at once; or the keys are handed on, and the rows are looked for when all are known
    (`write_modes.row_lookup`).
    """
    keys = columns_of(rows, table.layout.keys)
    if table.finds:
        named = pa.RecordBatch.from_arrays(keys, list(table.layout.keys))
        yield Parcel.of(task_output.RANGES, KeyRanges.of(named), table.index)
        carried = pa.RecordBatch.from_arrays([to_spark(column) for column in keys], list(table.layout.keys))
        yield Parcel.of_keys(carried, table.index)
        return
    wanted = may_exist(dict(zip(table.layout.keys, keys, strict=True)), table.known_keys)
    if wanted.any():
        batch = pa.RecordBatch.from_arrays(keys, schema=pa.schema(table.layout.key_fields))
        writer.deletes(batch if wanted.all() else batch.take(_indices(wanted)))


def _indices(mask: Mask) -> pa.Array:
    rows: Ints = np.flatnonzero(mask)
    return pa.array(rows)


def may_exist(keys: dict[str, pa.Array], known: KnownKeys) -> Mask:
    """Mark the keys that the table may hold: inside the bounds of every identifier column, or bounds unknown."""
    length = len(next(iter(keys.values())))
    if not known.certain:
        return np.ones(length, np.bool_)
    inside = np.full(length, bool(known.bounds), np.bool_)
    for name, (lowest, highest) in known.bounds.items():
        column = keys[name]
        low, high = pa.scalar(lowest, column.type), pa.scalar(highest, column.type)
        inside &= np.asarray(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
    return inside
