"""Event column -> table column when tables do not follow their events: what each type accepts.

Rules: Data Prepper's Iceberg sink (which values a type accepts; numbers of timestamps are epoch milliseconds, of
dates epoch days, of times milliseconds of the day) and Debezium Server's Jackson rules for booleans and numbers. What
cannot be converted is null in an optional column and a fault in a required one, inside structs and lists too. Where
those rules would make up a value (0 for "x", false for "maybe", 1 for 1.7) nothing is made up: it counts as not
convertible.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import CALENDAR_TYPES, convert
from serde.arrays import Mask, children
from serde.connect.values.binary_values import base64_to_binary, text_to_uuid
from serde.connect.values.temporal import null_beyond_years

_DAY_MS = 86_400_000
_ANY_DATE = "1970-01-01T"
"""Arrow reads a time of day only after a date."""


def coerce(column: pa.Array, field: pa.Field) -> tuple[pa.Array, Mask | None, int]:
    """Convert a column to the table's field.

    Returns:
        The column; a mask of the rows that the field cannot take (null there), None when there are none; and how many
        values became null because they could not be converted.
    """
    values, failed = _coerce_values(column, field.type)
    lost = int(failed.sum()) if failed is not None else 0
    if field.nullable:
        return values, None, lost
    bad = np.asarray(values.is_null())
    return values, bad if bad.any() else None, 0


def convert_required(column: pa.Array, target: pa.DataType, *, lenient: bool) -> tuple[pa.Array, Mask | None]:
    """Convert a column of required values: by the exact rules, or by those of lenient conversion."""
    return _coerce_values(column, target) if lenient else convert(column, target)


def _coerce_values(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Convert; the mask tells which values had to become null."""
    types = pa.types
    if types.is_struct(target) and types.is_struct(column.type):
        return _coerce_struct(column, target)
    if types.is_list(target) and types.is_list(column.type):
        return _coerce_list(column, target)
    if column.type.equals(target):
        return column, None
    if types.is_string(column.type):
        return _coerce_text(column, target)
    if types.is_boolean(column.type) and _is_number(target):
        column = column.cast(pa.int8())
    return _coerce_number(column, target) if _is_number(column.type) else convert(column, target)


def _coerce_text(column: pa.StringArray, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    types = pa.types
    if types.is_boolean(target):
        lower = pc.ascii_lower(column)
        known = pc.is_in(lower, value_set=pa.array(["true", "false"]))
        return _mark_failed(column, pc.if_else(known, pc.equal(lower, "true"), None))
    if types.is_binary(target) or (types.is_fixed_size_binary(target) and not isinstance(target, pa.UuidType)):
        binary, _ = base64_to_binary(column)
        return _mark_failed(column, convert(binary, target)[0])
    if isinstance(target, pa.UuidType):
        return text_to_uuid(column)
    if types.is_time(target):
        binary, _ = convert(pc.binary_join_element_wise(_ANY_DATE, column, ""), pa.timestamp("us"))
        return _mark_failed(column, binary.cast(target))
    return convert(column, target)


def _coerce_number(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    types = pa.types
    if types.is_boolean(target):
        return _mark_failed(column, pc.not_equal(convert(column, pa.int64())[0], 0))
    if types.is_timestamp(target):
        return _coerce_epoch(column, pa.timestamp("ms", target.tz), target)
    if types.is_date(target):
        return _coerce_epoch(column, pa.date32(), target)
    if types.is_time(target):
        whole, _ = convert(column, pa.int64())
        inside = pc.and_(pc.greater_equal(whole, 0), pc.less(whole, _DAY_MS))
        times = pc.if_else(inside, whole, None).cast(pa.int32()).cast(pa.time32("ms")).cast(target)
        return _mark_failed(column, times)
    return convert(column, target)


def _coerce_epoch(column: pa.Array, unit: pa.DataType, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    bits = pa.int32() if pa.types.is_date(unit) else pa.int64()
    whole, _ = convert(column, bits)
    converted, _ = convert(whole.cast(unit), target)
    if target in CALENDAR_TYPES:
        # Such a number is infinity, or has another unit.
        converted, _ = null_beyond_years(converted)
    return _mark_failed(column, converted)


def _coerce_struct(column: pa.StructArray, target: pa.StructType) -> tuple[pa.Array, Mask | None]:
    found = dict(zip(column.type.names, children(column), strict=True))
    failed = np.zeros(len(column), np.bool_)
    parts = []
    for field in target:
        child = found.get(field.name, pa.nulls(len(column), field.type))
        part, bad, _ = coerce(child, field)
        failed |= bad if bad is not None else False
        parts.append(part)
    failed &= np.asarray(column.is_valid())
    null_rows = pa.array(np.asarray(column.is_null()) | failed)
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=null_rows), failed if failed.any() else None


def _coerce_list(column: pa.ListArray, target: pa.ListType) -> tuple[pa.Array, Mask | None]:
    items, bad, _ = coerce(column.flatten(), target.value_field)
    sizes = np.asarray(pc.list_value_length(column).fill_null(0), np.int32)
    failed = np.zeros(len(column), np.bool_)
    if bad is not None:
        failed[np.repeat(np.arange(len(column)), sizes)[bad]] = True
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    null_rows = pa.array(np.asarray(column.is_null()) | failed)
    return pa.ListArray.from_arrays(offsets, items, type=target, mask=null_rows), failed if failed.any() else None


def _mark_failed(column: pa.Array, converted: pa.Array) -> tuple[pa.Array, Mask | None]:
    failed = np.asarray(column.is_valid()) & np.asarray(converted.is_null())
    return converted, failed if failed.any() else None


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
