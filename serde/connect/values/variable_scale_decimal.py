"""struct {scale, unscaled bytes} -> the number as plain text: VariableScaleDecimal, whose scale differs per row."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, valid_mask, view_bytes

_MAX_SCALE = 20_000  # PostgreSQL's numeric ends at 16383 digits behind the point


def to_text(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    """The numbers as plain text. Python per value: the scale differs per row."""
    scale, value = array.flatten()
    whole = valid_mask(array)
    data, starts, ends = view_bytes(value)
    present = whole & valid_mask(scale) & valid_mask(value) & (ends > starts)
    raw, scales = data.tobytes(), scale.to_pylist()
    values: list[str | None] = [None] * len(array)
    for index in np.flatnonzero(present).tolist():
        unscaled = int.from_bytes(raw[int(starts[index]) : int(ends[index])], "big", signed=True)
        values[index] = format_number(unscaled, scales[index])
    texts = pa.array(values, pa.string())
    bad = whole & ~valid_mask(texts)
    return texts, bad if bad.any() else None


def format_number(unscaled: int, scale: int) -> str | None:
    """unscaled * 10 ** -scale without an exponent; None for a scale that no database has."""
    if abs(scale) > _MAX_SCALE or abs(unscaled) >= 1 << 3 * _MAX_SCALE:
        return None
    digits = (
        str(Decimal(abs(unscaled)).to_integral_value()) if abs(unscaled) < 10**20 else _format_integer(abs(unscaled))
    )
    if scale <= 0:
        digits = digits + "0" * -scale if unscaled else "0"
    else:
        digits = digits.rjust(scale + 1, "0")
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if unscaled < 0 else digits


def _format_integer(number: int) -> str:
    """Digits of a number of any length (Python's own limit is 4300 digits), most significant first."""
    out: list[str] = []
    while number:
        number, rest = divmod(number, 10**4000)
        out.append(str(rest).rjust(4000, "0") if number else str(rest))
    return "".join(reversed(out))
