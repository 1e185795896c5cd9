"""Rows of deleted keys -> the same, marked deleted: soft deletes keep them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask
from serde.events.changes import DELETED_COLUMN


def mark_deleted(rows: pa.RecordBatch, is_deleted: Mask | None = None) -> pa.RecordBatch:
    """Set `__deleted` of the rows in `gone`, or of all; a table without that column keeps its rows as they are."""
    position = rows.schema.get_field_index(DELETED_COLUMN)
    if position < 0:
        return rows
    field = rows.schema.field(position)
    true = pa.scalar(True if pa.types.is_boolean(field.type) else "true", field.type)
    mask = pa.array(np.ones(rows.num_rows, np.bool_) if is_deleted is None else is_deleted)
    return rows.set_column(position, field, pc.if_else(mask, true, rows.column(position)))
