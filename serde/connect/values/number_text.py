"""big-endian two's complement -> numbers as text, every digit of it: decimals that no decimal column has room for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, valid_mask, view_bytes
from serde.connect.values.decimal_text import format_decimals
from serde.connect.values.variable_scale_decimal import format_number

_WIDE_BYTES, _WIDE_DIGITS = 32, 76
"""What Arrow's widest decimal has."""
_SIGN_BIT = 128


def bytes_to_number_text(data: pa.BinaryArray, scale: int) -> tuple[pa.Array, Mask | None]:
    """Unscaled numbers -> text, as many digits behind the point as the scale; bad: empty, or of absurd size.

    Cost: vectorised up to 76 digits, Python per value beyond.
    """
    values, starts, ends = view_bytes(data)
    valid, sizes = valid_mask(data), ends - starts
    bad = valid & (sizes <= 0)
    present = valid & ~bad
    wide = present & (sizes < _WIDE_BYTES) if 0 <= scale <= _WIDE_DIGITS else np.zeros(len(data), np.bool_)
    wide_texts = _wide_decimals(values, starts, ends, np.flatnonzero(wide), scale)
    rest = np.flatnonzero(present & ~wide)
    raw = values.tobytes() if len(rest) else b""
    texts = [
        format_number(int.from_bytes(raw[int(starts[at]) : int(ends[at])], "big", signed=True), scale) for at in rest
    ]
    joined = pa.concat_arrays([wide_texts, pa.array(texts, pa.string())])
    place = np.full(len(data), -1, np.int64)
    place[wide], place[rest] = np.arange(len(wide_texts)), len(wide_texts) + np.arange(len(rest))
    result = joined.take(pa.array(place, mask=place < 0))
    bad = valid & ~valid_mask(result)
    return result, bad if bad.any() else None


def _wide_decimals(values: np.ndarray, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, scale: int) -> pa.Array:
    """The numbers of some rows, each of fewer than 32 bytes, as text."""
    if not len(rows):
        return pa.array([], pa.string())
    negative = values[starts[rows]] >= _SIGN_BIT
    places = ends[rows, None] - 1 - np.arange(_WIDE_BYTES)
    inside = places >= starts[rows, None]
    words = np.where(inside, values[np.maximum(places, 0)], np.where(negative, 255, 0)[:, None]).astype(np.uint8)
    kind = pa.decimal256(_WIDE_DIGITS, scale)
    return format_decimals(pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(np.ascontiguousarray(words))]))
