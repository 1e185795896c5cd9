"""fields of events -> position numbers: whole numbers of a column, `NO_VALUE` where it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import NO_VALUE

FindColumn = Callable[[str], pa.Array | None]
"""Gives a field of the source, or one of the transaction by its path, None where no event has it."""


class PositionNumbers(NamedTuple):
    """Positions of one kind: their numbers, which are known, and where only those of one log compare, of which."""

    numbers: tuple[Ints, ...]
    known: Mask
    series: pa.StringArray | None = None


def read_integers(column: pa.Array | None, count: int) -> Ints:
    """Whole numbers, also as texts of digits or decimals; `NO_VALUE` for what is none."""
    if column is None:
        return np.full(count, NO_VALUE, np.int64)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        digits = pc.match_substring_regex(column, r"^\d{1,18}$").fill_null(False)
        column = pc.if_else(digits, column, pa.scalar(None, pa.string())).cast(pa.int64())
    if not pa.types.is_signed_integer(column.type):
        return np.full(count, NO_VALUE, np.int64)
    return np.asarray(column.cast(pa.int64()).fill_null(NO_VALUE), np.int64)


def zero_unknown(numbers: Ints) -> Ints:
    """Return the numbers, 0 where one is not known."""
    return np.where(numbers == NO_VALUE, 0, numbers)


def blank_texts(count: int) -> pa.StringArray:
    """Return as many empty texts."""
    return pa.array([""] * count, pa.string())  # of no rows Arrow would infer no text
