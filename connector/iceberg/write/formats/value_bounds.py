"""Lowest and highest values of a column, part by part -> a file's bounds of it. Pure.

A bound may lie outside of the values, never within: readers leave out files, and with them deletes, by it.
"""

from __future__ import annotations

from decimal import Context
from typing import Any

from attrs import define
from pyiceberg.types import DecimalType, PrimitiveType, UUIDType
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string

from connector.iceberg.types.values.single_values import encode_bytes

UNORDERED_TYPES = (UUIDType,)
"""Types that get no bounds. Iceberg's Java (1.12) orders uuids by two signed halves, Parquet by unsigned bytes: readers
of either kind would leave out what they must not."""

_DECIMAL_CONTEXT = Context(prec=40)
_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


@define
class ValueBounds:
    """What is known of a column so far; text and bytes are cut to `length`, outwards.

    `known` ends with the first part whose values have no known ends: the others say nothing of the whole then.
    """

    kind: PrimitiveType
    length: int | None
    low: Any = None
    high: Any = None
    known: bool = True

    def add(self, low: Any, high: Any) -> None:
        """Take the ends of a part of the values, as `single_values.to_stored_values` gives them.

        A part of nulls, or of numbers that are none, has no ends: it gives None, or such a number, which is equal to
        nothing.
        """
        if low is None or low != low:  # noqa: PLR0124
            return
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def lower(self) -> bytes | None:
        """Return the lower bound, None where none is known."""
        low = self.low
        if low is None or not self.known:
            return None
        if isinstance(low, float) and not low:
            low = -0.0
        return self._bytes(low if self.length is None else low[: self.length])

    def upper(self) -> bytes | None:
        """Return the upper bound, None where none is known, or none is that short."""
        high = self.high
        if high is None or not self.known:
            return None
        if isinstance(high, float) and not high:
            high = 0.0
        if isinstance(high, str):
            high = _truncate_upper_text(high, self.length)
        elif isinstance(high, bytes) and self.length is not None:
            high = truncate_upper_bound_binary_string(high, self.length)
        return None if high is None else self._bytes(high)

    def _bytes(self, value: Any) -> bytes:
        if isinstance(self.kind, DecimalType) and not isinstance(value, int):
            value = int(value.scaleb(self.kind.scale, _DECIMAL_CONTEXT))
        return encode_bytes(self.kind, value)


def _truncate_upper_text(text: str, length: int | None) -> str | None:
    """Return the lowest text of at most so many characters that is not below this one."""
    cut = text[:length]
    if cut == text:
        return text
    for place in reversed(range(len(cut))):
        code = ord(cut[place]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CODE_POINT:
            return cut[:place] + chr(code)
    return None
