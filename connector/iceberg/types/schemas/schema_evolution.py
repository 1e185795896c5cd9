"""Event columns + table columns -> the columns that the table should have (pure rules).

Iceberg lets a column grow (spec, "Schema Evolution": int to long, float to double, decimal to more digits) and never
change its meaning. A new table is free: its columns are the union of every event shape seen before its creation.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa

from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.required_values import make_field_optional
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, drop_unstorable, is_storable
from connector.iceberg.types.schemas.full_names import find_ambiguous_columns

_MAX_DECIMAL_DIGITS = 38


def union_shapes(shapes: Iterable[pa.StructType]) -> pa.Schema:
    """Return the columns of a new table from the shapes of its first events, in order of appearance."""

    def add(done: pa.Schema, shape: pa.StructType) -> pa.Schema:
        return _leave_out_ambiguous(done, _merge_shape(done, shape, free=True))

    return reduce(add, shapes, pa.schema([]))


def evolve(table: pa.Schema, shape: pa.StructType, *, add: bool) -> pa.Schema:
    """Return the table's columns after it took in `shape`: new columns at the end, types promoted where Iceberg can.

    A column whose type cannot be promoted stays; its values are converted one by one (see `conversion`).
    With `add` false nothing changes (`allow-field-addition=false`).
    """
    return _leave_out_ambiguous(table, _merge_shape(table, shape, free=False)) if add else table


def _leave_out_ambiguous(table: pa.Schema, grown: pa.Schema) -> pa.Schema:
    """Return columns without what makes full names ambiguous: those of the table stay as they are."""
    lost = find_ambiguous_columns(table, grown)
    if not lost:
        return grown
    names = set(table.names)
    kept = (field for field in grown if field.name not in lost or field.name in names)
    return pa.schema([table.field(field.name) if field.name in lost else field for field in kept])


def make_optional(columns: pa.Schema, paths: Iterable[Path]) -> pa.Schema:
    """Return the columns, some of them, or fields within them, not required any more."""
    return pa.schema(reduce(make_field_optional, paths, list(columns)))


def find_changed(table: pa.Schema, grown: pa.Schema) -> pa.Schema:
    """Return the columns of `grown` that the table does not have just so."""
    known = {field.name: field for field in table}
    return pa.schema([field for field in grown if field.name not in known or not field.equals(known[field.name])])


def contains(table: pa.Schema, shape: pa.StructType) -> bool:
    """Tell whether the table has every field of `shape`, each of the very type: then there is nothing to grow."""
    for field in shape:
        place = table.get_field_index(field.name)
        if place < 0 or not table.field(place).type.equals(field.type):
            return False
    return True


def _merge_shape(table: pa.Schema, shape: pa.StructType, *, free: bool) -> pa.Schema:
    fields = {field.name: field for field in table}
    for field in shape:
        if not is_storable(field.type):
            continue
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = pa.field(field.name, drop_unstorable(field.type))
        else:
            fields[field.name] = known.with_type(_widen_type(known.type, field.type, free=free))
    return pa.schema(list(fields.values()))


def _widen_type(column: pa.DataType, event: pa.DataType, *, free: bool) -> pa.DataType:
    """Return the type of `column` once it should hold `event` too; `column` itself when it cannot grow."""
    if column.equals(event) or not is_storable(event):
        return column
    for rule in (_widen_number, _widen_decimal, _widen_nested):
        wider = rule(column, event, free=free)
        if wider is not None:
            return wider
    return _widen_freely(column, event) if free else column


def _widen_number(column: pa.DataType, event: pa.DataType, *, free: bool) -> pa.DataType | None:
    types = pa.types
    if types.is_integer(column) and types.is_integer(event):
        return column if column.bit_width >= event.bit_width else event
    if types.is_floating(column) and types.is_floating(event):
        return column if column.bit_width >= event.bit_width else event
    numbers = all(types.is_integer(t) or types.is_floating(t) for t in (column, event))
    return pa.float64() if free and numbers else None


def _widen_decimal(column: pa.DataType, event: pa.DataType, *, free: bool) -> pa.DataType | None:
    if not (pa.types.is_decimal(column) and pa.types.is_decimal(event)):
        return None
    whole = max(column.precision - column.scale, event.precision - event.scale)
    scale = max(column.scale, event.scale) if free else column.scale
    return pa.decimal128(min(_MAX_DECIMAL_DIGITS, max(whole + scale, column.precision)), scale)


def _widen_nested(column: pa.DataType, event: pa.DataType, *, free: bool) -> pa.DataType | None:
    types = pa.types
    if types.is_struct(column) and types.is_struct(event):
        return pa.struct(list(_merge_shape(pa.schema(list(column)), event, free=free)))
    if types.is_list(column) and types.is_list(event):
        item = column.value_field
        return pa.list_(item.with_type(_widen_type(item.type, event.value_type, free=free)))
    if types.is_map(column) and types.is_map(event):
        item = column.item_field
        return pa.map_(column.key_field, item.with_type(_widen_type(item.type, event.item_type, free=free)))
    return None


def _widen_freely(column: pa.DataType, event: pa.DataType) -> pa.DataType:
    """Two scalars of different kinds meet before the table exists: text holds both, a variant anything."""
    if VARIANT_ARROW_TYPE in (column, event):
        return VARIANT_ARROW_TYPE
    nested = any(pa.types.is_nested(kind) for kind in (column, event))
    return column if nested else pa.string()
