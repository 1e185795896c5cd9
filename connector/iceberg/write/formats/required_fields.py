"""Columns -> the same without nulls in required fields of null structs, which Arrow's Parquet writer refuses.

Such a field has no value in the file: where its struct is null nothing of it is stored. Nulls below structs that are
there stay, and are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def has_required_fields(kind: pa.DataType) -> bool:
    """Tell whether a type has required fields within structs, at any depth."""
    if pa.types.is_struct(kind):
        return any(not field.nullable or has_required_fields(field.type) for field in kind)
    inner = [kind.field(place) for place in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return any(has_required_fields(field.type) for field in inner)


def fill_below_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give the required fields of null structs some value; all other values are as they were."""
    return pa.chunked_array([_fill(chunk) for chunk in column.chunks], type=column.type)


def _fill(array: pa.Array) -> pa.Array:
    kind = array.type
    if not has_required_fields(kind):
        return array
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        children = _fill_children(kind, array.flatten(), mask)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, _fill(array.keys), _fill(array.items), type=kind, mask=mask)
    return pa.ListArray.from_arrays(array.offsets, _fill(array.values), type=kind, mask=mask)


def _fill_children(
    kind: pa.StructType, children: Sequence[pa.Array], null_rows: pa.BooleanArray | None
) -> list[pa.Array]:
    filled = []
    for field, child in zip(kind, children, strict=True):
        lacking = child.null_count and null_rows is not None and not field.nullable
        if lacking and not pc.any(pc.and_(child.is_null(), pc.invert(null_rows))).as_py():
            child = _drop_nulls(child)  # noqa: PLW2901
        filled.append(_fill(child))
    return filled


def _drop_nulls(array: pa.Array) -> pa.Array:
    """Return the values that stand where there are nulls too; of nested ones empty ones."""
    kind, count = array.type, len(array)
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _drop_nulls(array.storage))
    if pa.types.is_struct(kind):
        inner = [
            child if field.nullable or not child.null_count else _drop_nulls(child)
            for field, child in zip(kind, array.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(inner, fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        empty = pa.scalar([], kind)
        return pc.if_else(array.is_valid(), array, empty)
    return pa.Array.from_buffers(kind, count, [None, *array.buffers()[1:]], null_count=0, offset=array.offset)
