"""Rows -> those that have a value which Arrow does not write to ORC files as Iceberg reads it. Pure.

Source: ORC's specification, "Timestamp Columns": the fraction of a second is a number from zero on. Arrow 26 writes one
below zero for times before 1970, which Java's readers take for a second earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from serde.arrays import Ints, Mask, children, valid_mask

EARLY_FRACTIONS = "a timestamp before 1970 with a fraction of a second is not written to ORC files"


def find_early_fractions(column: pa.Array) -> Mask | None:
    """Mark the rows that have a timestamp before 1970 with a fraction of a second, at any depth; None without any."""
    kind = column.type
    found: Mask | None
    if pa.types.is_timestamp(kind):
        found = _mark_early_fractions(column)
    elif pa.types.is_struct(kind):
        found = _join(find_early_fractions(part) for part in children(column))
    elif pa.types.is_map(kind):
        found = _join(_mark_rows(column, part) for part in (column.keys, column.items))
    elif pa.types.is_list(kind):
        found = _mark_rows(column, column.values)
    else:
        return None
    return found if found is not None and found.any() else None


def _mark_early_fractions(column: pa.Array) -> Mask:
    second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit]
    times: Ints = np.asarray(column.cast(pa.int64()).fill_null(0))
    return (times < 0) & (times % second != 0)


def _mark_rows(column: Any, values: pa.Array) -> Mask | None:
    """Mark the rows of a list or map column some of whose values are marked."""
    marks = find_early_fractions(values)
    if marks is None:
        return None
    before = np.concatenate([[0], np.cumsum(marks)])
    offsets = np.asarray(column.offsets)
    return (before[offsets[1:]] > before[offsets[:-1]]) & valid_mask(column)


def _join(masks: Iterable[Mask | None]) -> Mask | None:
    found = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(found) if found else None
