"""Event column -> table column: exact conversion, value by value where types differ, never a wrong value.

A value that the column cannot hold exactly is reported by its row, not rounded, wrapped or nulled.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.bits import Mask, uuid
from serde.temporal import clock


def converted(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Convert a column to the table's type.

    Returns:
        The converted column, and a mask of the rows whose value does not fit (null there), or None when all fit.

    Cost: one vectorised cast; only when that fails, O(bad * log n) further casts of slices.
    """
    if array.type.equals(target):
        return array, None
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target), None
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        return _struct(array, target)
    if pa.types.is_string(array.type) and (isinstance(target, pa.UuidType) or pa.types.is_time(target)):
        # Arrow casts text to neither.
        return clock(array) if pa.types.is_time(target) else uuid(array)
    if not _sensible(array.type, target):
        bad = np.asarray(array.is_valid())
        return pa.nulls(len(array), target), bad if bad.any() else None
    return _by_halves(array, target)


def _struct(array: pa.StructArray, target: pa.StructType) -> tuple[pa.Array, Mask | None]:
    children, bad = [], None
    # flatten, not field: below a null struct the reader leaves values that are none.
    found = dict(zip(array.type.names, array.flatten(), strict=True))
    for field in target:
        child = found.get(field.name, pa.nulls(len(array), field.type))
        column, faults = converted(child, field.type)
        children.append(column)
        bad = faults if bad is None else bad if faults is None else bad | faults
    return pa.StructArray.from_arrays(children, fields=list(target), mask=pc.is_null(array)), bad


def _by_halves(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    try:
        return _cast(array, target), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) == 1:
            return pa.nulls(1, target), np.ones(1, dtype=np.bool_)
    middle = len(array) // 2
    halves = [_by_halves(part, target) for part in (array.slice(0, middle), array.slice(middle))]
    masks = [np.zeros(len(column), np.bool_) if mask is None else mask for column, mask in halves]
    return pa.concat_arrays([column for column, _ in halves]), np.concatenate(masks)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.UuidType):
        return _cast(_uuid_text(array), target)
    if pa.types.is_string(target) and pa.types.is_boolean(array.type):
        return pc.if_else(array, "true", "false")
    if pa.types.is_string(target) and pa.types.is_floating(array.type):
        return _number_text(array)
    if pa.types.is_string(array.type) and pa.types.is_integer(target):
        array = _whole_text(array)
    if pa.types.is_integer(array.type) and pa.types.is_floating(target):
        return _exact_float(array, target)
    if pa.types.is_floating(array.type) and pa.types.is_decimal(target):
        # The shortest text that reads back as the same double is the number that the source wrote.
        return array.cast(pa.string()).cast(target)
    return array.cast(target)


def _whole_text(array: pa.StringArray) -> pa.StringArray:
    """Give the texts of whole numbers as Arrow reads them; it would take 0x10 for one, and +5 for none."""
    if pc.all(pc.match_substring_regex(array, "^[+-]?[0-9]+$")).as_py() is False:
        raise pa.ArrowInvalid("a text is no whole number")
    return pc.utf8_ltrim(array, "+")


def _number_text(array: pa.Array) -> pa.Array:
    """Give numbers as the wire has them, Java's words for those that are none included."""
    text = array.cast(pa.string())
    for arrow, java in (("nan", "NaN"), ("-inf", "-Infinity"), ("inf", "Infinity")):
        text = pc.if_else(pc.equal(text, arrow), java, text)
    return text


def _exact_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    cast = array.cast(target, safe=False)
    if pc.all(pc.equal(cast.cast(array.type, safe=False), array)).as_py() is False:
        raise pa.ArrowInvalid("an integer has more digits than the floating point column")
    return cast


def _uuid_text(array: pa.Array) -> pa.Array:
    raw = array.storage
    texts = [None if value is None else _dashed(value.hex()) for value in raw.to_pylist()]
    return pa.array(texts, pa.string())


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _sensible(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether values of `source` can mean the same in `target`; units are never guessed (a long is no date)."""
    types = pa.types
    if types.is_string(target):
        return not types.is_nested(source) and not types.is_binary(source)
    if types.is_integer(source) or types.is_floating(source) or types.is_decimal(source):
        return types.is_integer(target) or types.is_floating(target) or types.is_decimal(target)
    if types.is_string(source):
        bits = types.is_binary(target) or types.is_fixed_size_binary(target) or types.is_boolean(target)
        return not types.is_nested(target) and not bits
    if types.is_temporal(source) and types.is_temporal(target):
        return _same_clock(source, target)
    return _same_container(source, target)


def _same_clock(source: pa.DataType, target: pa.DataType) -> bool:
    """Date to timestamp keeps its meaning; a local timestamp never becomes an instant or the other way."""
    types = pa.types
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if types.is_date(source):
        return types.is_date(target) or (types.is_timestamp(target) and target.tz is None)
    return types.is_time(source) and types.is_time(target)


def _same_container(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(source) and types.is_list(target):
        return True
    if types.is_map(source) and types.is_map(target):
        return True
    return (types.is_binary(source) or types.is_fixed_size_binary(source)) and (
        types.is_binary(target) or types.is_fixed_size_binary(target)
    )
