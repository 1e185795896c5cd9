"""flattened events -> changes: operation, position and deletion are in the columns that the transform added.

Source: Debezium's page "New Record State Extraction" (delete mode rewrite, add.fields).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, column_at
from serde.events.changes import DELETED_COLUMN, Changes, select_paths
from serde.events.kinds.operations import OP_DELETE, encode_ops
from serde.events.positions.event_times import read_total_order, read_ts_ns
from serde.events.positions.log_positions import LogPositions
from serde.events.positions.origins import ORIGIN_FIELDS, join_origin
from serde.events.positions.position_numbers import FindColumn
from serde.events.positions.source_positions import TRANSACTION_FIELDS, mark_clock_dates, read_positions
from serde.messages import MessageBlock


def read_flattened(block: MessageBlock, prefix: str, op_field: str) -> Changes:
    """Return the changes of events that came flattened; `prefix` is that of the columns the transform added."""
    fields, count = block.fields, len(block.rows)
    column = column_at(fields, op_field)
    text = column is not None and pa.types.is_string(column.type)
    op = encode_ops(column) if text else np.zeros(count, np.uint8)
    order = _read_order(fields, prefix)
    optional = select_paths(block.optional, frozenset(fields.type.names))
    deleted = (op == OP_DELETE) | _read_deleted(fields)
    ts_ns = read_ts_ns(fields, f"{prefix}source_")
    place, origin = read_row_position(fields, prefix)
    clock = mark_clock_dates(_find_added(fields, prefix), count) | _is_document(fields)
    told = (optional, origin, block.documents, block.numbers)
    return Changes(block.rows, fields, op, deleted, ts_ns, place, order, clock, *told)


def _is_document(fields: pa.StructArray) -> bool:
    """Flattened documents of MongoDB have `_id`, and mostly nothing more that tells them from rows of a table."""
    return fields.type.get_field_index("_id") >= 0


def read_row_position(fields: pa.StructArray, prefix: str) -> tuple[LogPositions, pa.DictionaryArray]:
    """Where flattened events, or rows of a table made of some, stand in their source's log, and whose it is."""
    order = _read_order(fields, prefix)
    return read_positions(
        _find_added(fields, prefix),
        order,
        join_origin([_find_text(fields, prefix, n) for n in ORIGIN_FIELDS], len(fields)),
    )


def name_columns(field: str, prefix: str) -> tuple[str, ...]:
    """Return what the column of a field of the source may be called that was added; without a prefix a bare name is the
    row's own.
    """
    return (f"{prefix}source_{field}", f"{prefix}{field}") if prefix else (f"source_{field}",)


def _read_deleted(fields: pa.StructArray) -> Mask:
    """__deleted as the text "true" or as a boolean."""
    index = fields.type.get_field_index(DELETED_COLUMN)
    if index < 0:
        return np.zeros(len(fields), np.bool_)
    column = fields.field(index)
    if pa.types.is_string(column.type):
        column = pc.equal(column, "true")
    elif not pa.types.is_boolean(column.type):
        return np.zeros(len(fields), np.bool_)
    mask: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _find_added(fields: pa.StructArray, prefix: str) -> FindColumn:
    return lambda name: _find_text(fields, prefix, name)


def _find_text(fields: pa.StructArray, prefix: str, name: str) -> pa.Array | None:
    if name in TRANSACTION_FIELDS:
        return column_at(fields, prefix + name.replace(".", "_"))
    columns = (column_at(fields, column) for column in name_columns(name, prefix))
    return next((column for column in columns if column is not None), None)


def _read_order(fields: pa.StructArray, prefix: str) -> pa.Int64Array:
    return read_total_order(fields, (f"{prefix}transaction_total_order", f"{prefix}total_order"))
