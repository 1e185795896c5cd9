"""Columns of events whose type is another one than the table's -> columns beside them, or a stop, by option (pure).

Told by the schemas of both, never by a value: a column moves for all events of a schema or for none. A type that the
table's column grows to, or whose every value it holds, is no change. Messages without schema have no types.
"""

from __future__ import annotations

import re
from itertools import count

import attrs
import pyarrow as pa

from connector.errors import FatalError
from connector.iceberg.types.schemas.arrow_types import is_storable, to_iceberg_type
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.schemas.schema_evolution import evolve
from connector.settings.converters.event_format import TypeChangeMode
from serde.events.changes import Changes, rename_columns

_MAX_DIGITS = {32: 10, 64: 19}
"""Digits of whole numbers, by their bits."""
_EXACT_BITS = {32: 24, 64: 53}
"""Bits of whole numbers that floating ones hold, by their own."""


def follow_type_changes(change: Changes, layout: RowLayout, mode: TypeChangeMode) -> Changes:
    """Return the changes with fields of another type under the names of columns of their own.

    Raises:
        FatalError: `mode` is to stop, and a field has another type.
    """
    if mode == "dead-letter" or not change.optional:
        return change
    columns = layout.columns
    moved = {one.name: name_column(one.name, one.type) for one in change.row.type if has_other_type(one, layout)}
    if not moved:
        return change
    if mode == "stop":
        types = [(name, columns.field(name).type, change.row.type.field(name).type) for name in moved]
        differences = ", ".join(f"{name} ({before}, now {now})" for name, before, now in types)
        todo = "change the table, or set debezium.sink.iceberg.type-changes to dead-letter or new-column"
        raise FatalError(f"table {layout.name}: events have other types in columns {differences}; {todo}")
    followed = rename_columns(change, moved)
    # The column before is not in these events, which says nothing of whether it may be null.
    optional = {**followed.optional, **dict.fromkeys((*moved, *moved.values()), True)}
    return attrs.evolve(followed, optional=optional, documents=change.documents)


def has_other_type(field: pa.Field, layout: RowLayout) -> bool:
    """Tell whether a field may have a column beside the table's, which does not hold all values of its type."""
    columns, fixed = layout.columns, layout.variants | set(layout.keys) | set(layout.key_columns)
    if field.name not in columns.names or field.name in fixed:
        return False
    return is_storable(field.type) and not holds_all(columns.field(field.name).type, field.type)


def name_column(name: str, kind: pa.DataType) -> str:
    """Return the name of the column beside another one that holds values of this type: a__decimal_12_4."""
    type_name = str(to_iceberg_type(kind, count(1), nanoseconds=True)).partition("<")[0]
    return f"{name}__{re.sub('[^a-z0-9]+', '_', type_name).strip('_')}"


def holds_all(column: pa.DataType, event: pa.DataType) -> bool:
    """Tell whether a column of this type holds every value of an event's, or grows to."""
    types = pa.types
    if column.equals(event) or types.is_null(event):
        return True
    if types.is_nested(column) or types.is_nested(event):
        return column.id == event.id and all(holds_all(one, other) for one, other in _pair_inner_types(column, event))
    if types.is_string(column):
        return not types.is_binary(event) and not types.is_fixed_size_binary(event)
    grown = evolve(pa.schema([("c", column)]), pa.struct([("c", event)]), add=True).field(0).type
    return _holds_number(grown, event) or _holds_moment(grown, event) or grown.equals(event)


def _pair_inner_types(column: pa.DataType, event: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """Return the types within two types of one kind; fields that only one struct has are no change."""
    if pa.types.is_struct(column):
        return [(field.type, event.field(field.name).type) for field in column if field.name in event.names]
    if pa.types.is_map(column):
        return [(column.key_type, event.key_type), (column.item_type, event.item_type)]
    return [(column.value_type, event.value_type)]


def _holds_number(column: pa.DataType, event: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(event):
        if types.is_integer(column):
            return bool(column.bit_width >= event.bit_width)
        if types.is_decimal(column):
            return bool(column.precision - column.scale >= _MAX_DIGITS[event.bit_width])
        return bool(types.is_floating(column) and _EXACT_BITS[column.bit_width] >= event.bit_width)
    if types.is_floating(event):
        return bool(types.is_floating(column) and column.bit_width >= event.bit_width)
    if types.is_decimal(event) and types.is_decimal(column):
        whole = event.precision - event.scale
        return bool(column.scale >= event.scale and column.precision - column.scale >= whole)
    return False


def _holds_moment(column: pa.DataType, event: pa.DataType) -> bool:
    types = pa.types
    if types.is_timestamp(column) and types.is_timestamp(event):
        return (column.tz is None) == (event.tz is None) and column.unit == event.unit
    return bool(types.is_timestamp(column) and column.tz is None and types.is_date(event))
