"""Texts for columns of decimals -> which may be unscaled numbers in base64, and so are no number at all. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, children


def find_base64(column: pa.Array, kind: pa.DataType) -> Mask | None:
    """Mark the rows with a text for a decimal that may be the base64 of an unscaled number, at any depth.

    Nothing tells without a schema. `decimal.handling.mode=string` writes all digits of the scale, so its texts have a
    point, which base64 has not.
    """
    found: Mask | None = None
    if pa.types.is_string(column.type) and pa.types.is_decimal(kind):
        suspect = pc.invert(pc.match_substring(column, ".")).fill_null(False)
        found = np.asarray(suspect) if kind.scale else None
    elif pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        named = dict(zip(column.type.names, children(column), strict=True))
        parts = (find_base64(named[field.name], field.type) for field in kind if field.name in named)
        marks = [mark for mark in parts if mark is not None]
        found = np.logical_or.reduce(marks) if marks else None
    elif pa.types.is_list(column.type) and pa.types.is_list(kind):
        items = find_base64(column.flatten(), kind.value_type)
        if items is not None:
            sizes = np.asarray(pc.list_value_length(column).fill_null(0))
            found = np.zeros(len(column), np.bool_)
            found[np.repeat(np.arange(len(column)), sizes)[items]] = True
    return found if found is not None and found.any() else None
