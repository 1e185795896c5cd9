"""Event column -> table column: exact conversion, value by value where types differ, never a wrong value.

A value that the column cannot hold exactly is reported by its row, not rounded, wrapped or nulled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask
from serde.connect.values.binary_values import text_to_uuid
from serde.connect.values.decimal_text import format_decimals
from serde.connect.values.temporal import drop_finer_zeros, null_beyond_years, parse_local_time, shift_offset_seconds
from serde.json.scalars import holds_exactly

_MAX_DECIMAL_DIGITS = 38
CALENDAR_TYPES = frozenset({pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")})
"""Those that have room for more years than tables promise to hold."""

_INT64_DIGITS = 20
"""No whole number of 64 bits has more."""

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,400}")
_DIGIT = re.compile("[0-9]")
_MAX_WHOLE_DOUBLE = 2.0**53
_FLOAT_DIGITS = 9
"""No float needs more digits to be told from the others."""


def convert(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Convert a column to the table's type.

    Returns:
        The converted column, and a mask of the rows whose value does not fit (null there), or None when all fit.

    Cost: one vectorised cast; only when that fails, O(bad * log n) further casts of slices.
    """
    if array.type.equals(target):
        return array, None
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target), None
    if (rule := _NESTED_CONVERSIONS.get((array.type.id, target.id))) is not None:
        return rule(array, target)
    if pa.types.is_string(array.type) and (isinstance(target, pa.UuidType) or pa.types.is_time(target)):
        # Arrow casts text to neither.
        return parse_local_time(array) if pa.types.is_time(target) else text_to_uuid(array)
    if not _is_convertible(array.type, target):
        bad = np.asarray(array.is_valid())
        return pa.nulls(len(array), target), bad if bad.any() else None
    if pa.types.is_string(array.type) and pa.types.is_timestamp(target):
        array = array if target.tz is None else shift_offset_seconds(array)
        array = drop_finer_zeros(array) if target.unit == "us" else array
    return _cast_by_halves(array, target)


def schemaless_type(column: pa.DataType) -> pa.DataType:
    """Return the type that values without schema are read by: text where nothing else can become the column's type.

    So numbers or flags beside them, however many, do not decide what the texts are.
    """
    if pa.types.is_struct(column):
        return pa.struct([field.with_type(schemaless_type(field.type)) for field in column])
    if pa.types.is_list(column) or pa.types.is_large_list(column):
        return pa.list_(column.value_field.with_type(schemaless_type(column.value_type)))
    bits = pa.types.is_binary(column) or pa.types.is_fixed_size_binary(column)
    return pa.string() if bits or isinstance(column, pa.UuidType) or pa.types.is_temporal(column) else column


def _convert_struct(array: pa.StructArray, target: pa.StructType) -> tuple[pa.Array, Mask | None]:
    children, bad = [], None
    # flatten, not field: below a null struct the reader leaves values that are none.
    found = dict(zip(array.type.names, array.flatten(), strict=True))
    for field in target:
        child = found.get(field.name, pa.nulls(len(array), field.type))
        column, faults = convert(child, field.type)
        children.append(column)
        bad = faults if bad is None else bad if faults is None else bad | faults
    return pa.StructArray.from_arrays(children, fields=list(target), mask=pc.is_null(array)), bad


def _convert_list(array: pa.ListArray, target: pa.ListType) -> tuple[pa.Array, Mask | None]:
    offsets, owners = _list_offsets(array)
    items, faults = convert(array.flatten(), target.value_type)
    lists = pa.ListArray.from_arrays(offsets, items, type=target, mask=pc.is_null(array))
    return lists, _rows_with_faults(owners, faults, len(array))


def _convert_map(array: pa.MapArray, target: pa.MapType) -> tuple[pa.Array, Mask | None]:
    offsets, owners = _list_offsets(array)
    flat = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))).flatten()
    keys, wrong = convert(flat.field(0), target.key_type)
    items, faults = convert(flat.field(1), target.item_type)
    bad = [_rows_with_faults(owners, mask, len(array)) for mask in (wrong, faults)]
    found = bad[0] if bad[1] is None else bad[1] if bad[0] is None else bad[0] | bad[1]
    if wrong is not None:
        # A key may not be null, so such a map is left out before it is put together.
        kept, _ = convert(pc.if_else(pa.array(found), pa.scalar(None, array.type), array), target)
        return kept, found
    maps = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=pc.is_null(array))
    return maps, found


_STRUCT, _LIST, _MAP = pa.struct([]).id, pa.list_(pa.null()).id, pa.map_(pa.string(), pa.null()).id
_NESTED_CONVERSIONS: Mapping[tuple[int, int], Callable[[pa.Array, pa.DataType], tuple[pa.Array, Mask | None]]] = {
    (_STRUCT, _STRUCT): _convert_struct,
    (_LIST, _LIST): _convert_list,
    (_MAP, _MAP): _convert_map,
}
"""What holds other values is converted value by value below."""


def _list_offsets(array: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return the offsets from zero, those of null rows being empty, and for each item the row that holds it."""
    sizes = np.where(np.asarray(array.is_valid()), np.diff(np.asarray(array.offsets)), 0)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return offsets, np.repeat(np.arange(len(array)), sizes)


def _rows_with_faults(owners: np.ndarray, faults: Mask | None, count: int) -> Mask | None:
    if faults is None:
        return None
    found = np.zeros(count, np.bool_)
    found[owners[faults]] = True
    return found


def _cast_by_halves(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    try:
        return _cast(array, target), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) <= 1:
            bad = np.asarray(array.is_valid())
            return pa.nulls(len(array), target), bad if bad.any() else None
    middle = len(array) // 2
    halves = [_cast_by_halves(part, target) for part in (array.slice(0, middle), array.slice(middle))]
    masks = [np.zeros(len(column), np.bool_) if mask is None else mask for column, mask in halves]
    return pa.concat_arrays([column for column, _ in halves]), np.concatenate(masks)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.UuidType):
        return _cast(_uuid_to_text(array), target)
    if pa.types.is_string(target) and pa.types.is_boolean(array.type):
        return pc.if_else(array, "true", "false")
    if pa.types.is_string(target) and pa.types.is_floating(array.type):
        return _number_to_text(array)
    if pa.types.is_string(target) and pa.types.is_timestamp(array.type):
        # ISO 8601, as in columns whose moments are read as texts.
        return pc.replace_substring(array.cast(target), " ", "T")
    return _cast_text(array, target) if pa.types.is_string(array.type) else _cast_number(array, target)


def _cast_text(array: pa.StringArray, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(target):
        array = _normalize_whole_text(array)
    if pa.types.is_floating(target):
        return _text_to_float(array, target)
    if pa.types.is_decimal(target):
        return _text_to_decimal(array, target)
    return _text_to_moment(array, target) if target in CALENDAR_TYPES else array.cast(target)


def _cast_number(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(array.type) and pa.types.is_floating(target):
        return _integer_to_float(array, target)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return _decimal_to_float(array, target)
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        # Of whole numbers Arrow asks for a column that has room for all of their type.
        array = array.cast(pa.decimal128(_INT64_DIGITS, 0))
    if pa.types.is_decimal(array.type) and pa.types.is_decimal(target) and target.scale > array.type.scale:
        _check_decimal_room(array, target)
    if pa.types.is_decimal(array.type) and pa.types.is_string(target):
        return format_decimals(array)
    if pa.types.is_floating(array.type) and pa.types.is_float32(target):
        return _double_to_float(array)
    if pa.types.is_floating(array.type) and pa.types.is_decimal(target):
        # The shortest text that reads back as the same double is the number that the source wrote.
        return _text_to_decimal(array.cast(pa.string()), target)
    return array.cast(target)


def _normalize_whole_text(array: pa.StringArray) -> pa.StringArray:
    """Return the texts of whole numbers as Arrow reads them; it would take 0x10 for one, and +5 for none."""
    if pc.all(pc.match_substring_regex(array, "^[+-]?[0-9]+$")).as_py() is False:
        raise pa.ArrowInvalid("a text is no whole number")
    return pc.utf8_ltrim(array, "+")


def _text_to_float(array: pa.StringArray, target: pa.DataType) -> pa.Array:
    """Return the floating numbers of texts: the nearest of a fraction, a whole number itself."""
    floats = array.cast(target)
    doubtful = pc.or_(pc.match_substring_regex(array, "^[+-]?[0-9]{8,}$"), pc.is_inf(floats)).fill_null(False)
    if pc.any(doubtful).as_py():
        for text in array.filter(doubtful).to_pylist():
            whole = _WHOLE_NUMBER.fullmatch(text) is not None
            if (whole and not holds_exactly(int(text), target.bit_width)) or (not whole and _DIGIT.search(text)):
                raise pa.ArrowInvalid("a text is a number that the floating point column has no room for")
    return floats


def _text_to_moment(array: pa.StringArray, target: pa.DataType) -> pa.Array:
    """Return dates and timestamps of texts; Arrow's reach beyond the years that tables promise to hold."""
    moments = array.cast(target)
    if null_beyond_years(moments)[1] is not None:
        raise pa.ArrowInvalid("a text is a moment beyond the calendar")
    return moments


def _check_decimal_room(array: pa.Array, target: pa.DataType) -> None:
    """Raise for decimals of more whole digits than 38 leave beside the new scale: Arrow would give other numbers."""
    limit = pa.scalar(
        Decimal(1).scaleb(_MAX_DECIMAL_DIGITS - target.scale), pa.decimal128(_MAX_DECIMAL_DIGITS, array.type.scale)
    )
    if pc.all(pc.less(pc.abs(array), limit)).as_py() is False:
        raise pa.ArrowInvalid("a decimal has more digits than the column")


def _text_to_decimal(array: pa.StringArray, target: pa.DataType) -> pa.Array:
    """Return decimals of texts; Arrow makes others of some that are far below its scale, or beyond its digits."""
    decimals = array.cast(target)
    digits = min(30, max(1, _MAX_DECIMAL_DIGITS + 1 - target.scale))
    out_of_range = pc.match_substring_regex(array, f"[eE]|[0-9.]{{{digits}}}").fill_null(False)
    if pc.any(out_of_range).as_py():
        pairs = zip(array.filter(out_of_range).to_pylist(), decimals.filter(out_of_range).to_pylist(), strict=True)
        if any(Decimal(text) != number for text, number in pairs):
            raise pa.ArrowInvalid("a text is a number that the decimal column has no room for")
    return decimals


def _number_to_text(array: pa.Array) -> pa.Array:
    """Return numbers as the wire has them, Java's words for those that are none included."""
    text = array.cast(pa.string())
    for arrow, java in (("nan", "NaN"), ("-inf", "-Infinity"), ("inf", "Infinity")):
        text = pc.if_else(pc.equal(text, arrow), java, text)
    return text


def _integer_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    cast = array.cast(target, safe=False)
    # What is one beyond the range would come back as its end.
    inside = pc.less(cast, 2.0 ** (array.type.bit_width - 1))
    if pc.all(pc.and_(inside, pc.equal(cast.cast(array.type, safe=False), array))).as_py() is False:
        raise pa.ArrowInvalid("an integer has more digits than the floating point column")
    return cast


def _decimal_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the floating numbers that are written as these decimals."""
    cast = array.cast(pa.float64()).cast(target)
    if pc.all(pc.equal(cast.cast(pa.string()).cast(array.type), array)).as_py() is False:
        raise pa.ArrowInvalid("a decimal has more digits than the floating point column")
    return cast


def _double_to_float(array: pa.Array) -> pa.Array:
    """Return doubles as floats: what a float is, or is written as, up to nine digits; a fraction is the nearest.

    So is a number beyond 2^53: Java before 19 writes some floats with a digit more than they need, and nine digits with
    zeros behind them are hardly a count there. Other whole numbers are themselves, or refused.
    """
    floats = array.cast(pa.float32(), safe=False)
    same = pc.or_(pc.equal(floats.cast(pa.float64()), array), pc.is_nan(array))
    if pc.all(same).as_py() is not False:
        return floats
    written = pc.equal(floats.cast(pa.string()).cast(pa.float64()), array)
    digits = pc.utf8_length(pc.replace_substring_regex(array.cast(pa.string()), r"0*([eE].*)?$|^-?0\.0*|[-.]", ""))
    is_nearest = pc.less_equal(
        pc.abs(pc.subtract(floats.cast(pa.float64()), array)), pc.multiply(pc.abs(array), 2.0**-24)
    )
    no_count = pc.or_(pc.not_equal(pc.round(array), array), pc.greater(pc.abs(array), _MAX_WHOLE_DOUBLE))
    nearest = pc.and_(pc.and_(is_nearest, pc.less_equal(digits, _FLOAT_DIGITS)), no_count)
    if pc.all(pc.or_(same, pc.or_(written, nearest))).as_py() is False:
        raise pa.ArrowInvalid("a number has more digits than the column of floats")
    return floats


def _uuid_to_text(array: pa.Array) -> pa.Array:
    raw = array.storage
    texts = [None if value is None else _format_uuid(value.hex()) for value in raw.to_pylist()]
    return pa.array(texts, pa.string())


def _format_uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _is_convertible(source: pa.DataType, target: pa.DataType) -> bool:
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
        return _is_same_temporal_kind(source, target)
    return _are_both_binary(source, target)


def _is_same_temporal_kind(source: pa.DataType, target: pa.DataType) -> bool:
    """Date to timestamp keeps its meaning; a local timestamp never becomes an instant or the other way."""
    types = pa.types
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if types.is_date(source):
        return types.is_date(target) or (types.is_timestamp(target) and target.tz is None)
    return types.is_time(source) and types.is_time(target)


def _are_both_binary(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    return (types.is_binary(source) or types.is_fixed_size_binary(source)) and (
        types.is_binary(target) or types.is_fixed_size_binary(target)
    )
