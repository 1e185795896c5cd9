"""wire columns + their texts -> the rows that the columnar reader may have misread, to be read one by one.

It rounds a whole number that a floating column has no room for, keeps the sign of a whole zero there, takes the bare
words NaN and Inf, which are no JSON, in a column of decimals a text for a number, which may be base64, and of more
digits than there is room for another number. A column alone does not tell those; their text does. Decimals it scales
without a look at the precision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from serde.arrays import Mask, children, valid_mask
from serde.byte_windows import ByteWindows, window_array

_MAX_EXACT: Mapping[pa.DataType, float] = {pa.float32(): 2.0**24, pa.float64(): 2.0**53}
"""Up to here every whole number is one of the type."""
_NEGATIVE_ZERO = {pa.float32(): pa.scalar(-(2**31), pa.int32()), pa.float64(): pa.scalar(-(2**63), pa.int64())}
"""Its bits as a whole number."""

_END = r"\s*[,}\]]"
_LONG = r"\s*(?:-?[0-9]{8,}|-0)" + _END
_ODD_DECIMAL = (
    r'\s*(?:"[^"\\]*\\|(?:"[-+0-9eE]*"|"?[-+]?[0-9.]*[eE][-+0-9]*"?|"?[-+]?[0-9]{%d,}(?:\.[0-9]*)?"?)' + _END + ")"
)
"""Texts with escapes, or without a point; exponents; more whole digits than there is room for, in quotes or not."""
_MAX_DIGITS = 38
_ESCAPED = r'\\.[^"]*"\s*:'
"""The end of a name that is written with escapes: it may be any."""
_ANY_NAME = r'"\s*:'
_IN_LIST = r"[\[,]"
_MAX_NAMES = 64
_CACHED_TYPES = 256


@frozen(eq=False)
class MisreadChecks:
    """What to look for in rows of one type."""

    floats: bool
    long: str | None
    decimal: str | None

    @classmethod
    @lru_cache(maxsize=_CACHED_TYPES)
    def of(cls, kind: pa.StructType) -> MisreadChecks:
        """The doubts about a type."""
        floats, decimals = (_field_names(kind, test, None) for test in (pa.types.is_floating, pa.types.is_decimal))
        # With more whole digits than 38 leave beside the scale, Arrow gives other numbers.
        odd = _ODD_DECIMAL % (_MAX_DIGITS + 1 - max(_scales(kind), default=0))
        long, decimal = (_build_pattern(set(names), end) for names, end in ((floats, _LONG), (decimals, odd)))
        return cls(long is not None, long, decimal)

    def about(self, array: pa.StructArray, texts: ByteWindows) -> Mask | None:
        """The rows in doubt, None when there are none. Cost: a look at floating columns, at texts where they say."""
        misread: Mask | None = None
        if self.floats and not _all_exact(array):
            misread = _find_rows(array, _is_infinite)
            large = np.flatnonzero(_find_rows(array, _is_inexact) & ~misread)
            if len(large) and self.long is not None:
                misread[large] = _match_texts(texts.pick(large), self.long)
        if self.decimal is not None:
            odd = _match_texts(texts, self.decimal) | _find_rows(array, _exceeds_precision, pa.types.is_decimal)
            misread = odd if misread is None else misread | odd
        return misread if misread is not None and misread.any() else None


def _scales(kind: pa.DataType) -> Iterator[int]:
    if pa.types.is_decimal(kind):
        yield kind.scale
    for index in range(kind.num_fields):
        yield from _scales(kind.field(index).type)


def _field_names(kind: pa.DataType, test: Callable[[pa.DataType], bool], name: str | None) -> Iterator[str | None]:
    """Names of the fields of such types, None for items of lists."""
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _field_names(child.type, test, child.name)
    elif pa.types.is_list(kind):
        yield from _field_names(kind.value_type, test, None)
    elif test(kind):
        yield name


def _build_pattern(names: set[str | None], end: str) -> str | None:
    """Values of these fields that end so."""
    if not names:
        return None
    sorted_names = sorted(name for name in names if name is not None)
    keys = [re.escape(json.dumps(name, ensure_ascii=False)) + r"\s*:" for name in sorted_names]
    before = [_ANY_NAME] if len(keys) > _MAX_NAMES else keys
    before += [_ESCAPED] if keys else []
    before += [_IN_LIST] if None in names else []
    return f"(?:{'|'.join(before)}){end}"


def _match_texts(texts: ByteWindows, pattern: str) -> Mask:
    data = window_array(texts.data, texts.starts, texts.ends)
    matches: Mask = pc.match_substring_regex(data, pattern).to_numpy(zero_copy_only=False)
    return matches


def _all_exact(array: pa.Array) -> bool:
    """True when every floating number below is finite, of a size at which all whole numbers are held, and no -0."""
    if pa.types.is_floating(array.type):
        return pc.any(_is_inexact(array)).as_py() is not True
    if pa.types.is_struct(array.type):
        return all(_all_exact(child) for child in children(array))
    return _all_exact(array.values) if pa.types.is_list(array.type) else True


def _is_infinite(array: pa.Array) -> pa.Array:
    return pc.invert(pc.is_finite(array))


def _is_inexact(array: pa.Array) -> pa.Array:
    zero = _NEGATIVE_ZERO[array.type]
    return pc.invert(pc.and_(pc.less(pc.abs(array), _MAX_EXACT[array.type]), pc.not_equal(array.view(zero.type), zero)))


def _exceeds_precision(array: pa.Array) -> pa.Array:
    """True for decimals of more digits than their type has; of 38 the text tells."""
    kind = array.type
    if kind.precision == _MAX_DIGITS:
        return pa.repeat(pa.scalar(False), len(array))
    limit = pa.scalar(Decimal(1).scaleb(kind.precision - kind.scale), pa.decimal128(_MAX_DIGITS, kind.scale))
    return pc.greater_equal(pc.abs(array), limit)


def _find_rows(
    array: pa.Array,
    test: Callable[[pa.Array], pa.Array],
    of_kind: Callable[[pa.DataType], bool] = pa.types.is_floating,
) -> Mask:
    """True where a number of such a type, at or below a row, passes the test."""
    rows = np.zeros(len(array), np.bool_)
    if of_kind(array.type):
        return np.asarray(test(array).fill_null(False))
    if pa.types.is_struct(array.type):
        for child in children(array):
            rows |= _find_rows(child, test, of_kind)
    elif pa.types.is_list(array.type):
        sizes = np.where(valid_mask(array), np.diff(array.offsets.to_numpy()), 0)
        owners = np.repeat(np.arange(len(array)), sizes)
        rows[owners[_find_rows(array.flatten(), test, of_kind)]] = True
    return rows
