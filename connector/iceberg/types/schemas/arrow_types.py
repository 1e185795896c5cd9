"""Arrow types of decoded events <-> Iceberg types: the one table both directions go through.

`serde` speaks logical Arrow types (spec: Connect and Debezium schema names are resolved there); tables speak Iceberg
types. Field ids live in Arrow metadata under `PARQUET:field_id`, where Parquet writers expect them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import singledispatch
from itertools import count
from typing import Literal

import pyarrow as pa
from pydantic import Field
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.iceberg.types.nested_columns import find_path, require_fields

VARIANT_ARROW_TYPE = pa.json_()
"""In the shape of events: a column that becomes a variant in a table that has none of that name yet."""


class VariantType(PrimitiveType):
    """Iceberg's variant (spec, format version 3), which PyIceberg lacks: for schemas that are handed to Iceberg."""

    root: Literal["variant"] = Field(default="variant")


_PRIMITIVE_TYPES: tuple[tuple[Callable[[pa.DataType], bool], IcebergType], ...] = (
    (pa.types.is_boolean, BooleanType()),
    (lambda t: pa.types.is_integer(t) and t.bit_width < 64, IntegerType()),  # noqa: PLR2004 - int64 is a long
    (pa.types.is_integer, LongType()),
    (lambda t: pa.types.is_floating(t) and t.bit_width < 64, FloatType()),  # noqa: PLR2004
    (pa.types.is_floating, DoubleType()),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t), StringType()),
    (lambda t: isinstance(t, pa.UuidType), UUIDType()),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), BinaryType()),
    (pa.types.is_date, DateType()),
    (pa.types.is_time, TimeType()),
    (VARIANT_ARROW_TYPE.equals, VariantType()),
)


def to_iceberg_type(arrow: pa.DataType, ids: Iterator[int], *, nanoseconds: bool) -> IcebergType:
    """Return the Iceberg type of a decoded Arrow type; new nested fields take their ids from `ids`.

    Args:
        arrow: a logical Arrow type as `serde` makes them.
        ids: fresh field ids (Iceberg wants an unused id for each list element, map key, map value, struct field).
        nanoseconds: whether the table's format version has nanosecond timestamps (v3).

    Raises:
        TypeError: the type has no place in an Iceberg table (a null type, an empty struct).
    """
    for matches, result in _PRIMITIVE_TYPES:
        if matches(arrow):
            return result
    if pa.types.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_fixed_size_binary(arrow):
        return FixedType(arrow.byte_width)
    if pa.types.is_timestamp(arrow):
        return _timestamp_type(arrow, nanoseconds=nanoseconds)
    return _nested_type(arrow, ids, nanoseconds=nanoseconds)


def _timestamp_type(arrow: pa.TimestampType, *, nanoseconds: bool) -> IcebergType:
    if arrow.unit == "ns" and nanoseconds:
        return TimestamptzNanoType() if arrow.tz else TimestampNanoType()
    return TimestamptzType() if arrow.tz else TimestampType()


def _nested_type(arrow: pa.DataType, ids: Iterator[int], *, nanoseconds: bool) -> IcebergType:
    def inner(kind: pa.DataType) -> IcebergType:
        return to_iceberg_type(kind, ids, nanoseconds=nanoseconds)

    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return ListType(next(ids), inner(arrow.value_type), element_required=not arrow.value_field.nullable)
    if pa.types.is_map(arrow):
        required = not arrow.item_field.nullable
        return MapType(next(ids), inner(arrow.key_type), next(ids), inner(arrow.item_type), value_required=required)
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return StructType(*(NestedField(next(ids), f.name, inner(f.type), required=not f.nullable) for f in arrow))
    raise TypeError(f"no Iceberg type for {arrow}")


def is_variant_candidate(kind: pa.DataType) -> bool:
    """Tell whether a column of events is nested, so that it may become a variant; lists of single values are not."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.types.is_nested(kind.value_type)
    return pa.types.is_nested(kind)


def is_storable(arrow: pa.DataType) -> bool:
    """Tell whether a type can be a column now; null-only and empty ones wait until a value shows their type."""
    if pa.types.is_null(arrow):
        return False
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return is_storable(arrow.value_type)
    if pa.types.is_map(arrow):
        return is_storable(arrow.item_type)
    return not pa.types.is_struct(arrow) or any(is_storable(field.type) for field in arrow)


def drop_unstorable(arrow: pa.DataType) -> pa.DataType:
    """Drop nested fields that cannot be stored yet (see `is_storable`)."""
    if pa.types.is_struct(arrow):
        return pa.struct([f.with_type(drop_unstorable(f.type)) for f in arrow if is_storable(f.type)])
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return pa.list_(drop_unstorable(arrow.value_type))
    if pa.types.is_map(arrow):
        return pa.map_(arrow.key_type, drop_unstorable(arrow.item_type))
    return arrow


def build_table_schema(
    columns: pa.Schema, keys: tuple[str, ...], required: frozenset[str], *, nanoseconds: bool
) -> Schema:
    """Build the Iceberg schema of a new table; `keys` become required identifier fields (spec: identifier field ids).

    So do the structs around a key that lies within some. Field ids of the top level come first, in column order, as
    Iceberg assigns them itself.
    """
    nested = count(len(columns) + 1)
    paths = [path for path in (find_path(columns, name) for name in keys) if path is not None]
    columns = pa.schema(require_fields(columns, paths))
    tops = {path[0] for path in paths}
    fields = [
        NestedField(
            field_id=position,
            name=column.name,
            field_type=to_iceberg_type(column.type, nested, nanoseconds=nanoseconds),
            required=column.name in required or column.name in tops,
        )
        for position, column in enumerate(columns, start=1)
    ]
    schema = Schema(*fields)
    ids = [schema.find_field(".".join(path)).field_id for path in paths]
    return Schema(*fields, identifier_field_ids=sorted(ids))


def to_arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema, with field ids, that files of this Iceberg schema are written with."""
    return pa.schema([field.with_type(_use_small_offsets(field.type)) for field in schema_to_pyarrow(schema)])


def make_nullable(columns: pa.Schema) -> pa.Schema:
    """Return the same columns, none of them required: rows on their way may still lack what the table requires."""
    return pa.schema([field.with_nullable(True) for field in columns])


@singledispatch
def _use_small_offsets(kind: pa.DataType) -> pa.DataType:
    """Use 32-bit offsets: a batch is far below 2 GiB, and the JSON reader makes them so."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


@_use_small_offsets.register
def _(kind: pa.StructType) -> pa.DataType:
    return pa.struct([f.with_type(_use_small_offsets(f.type)) for f in kind])


@_use_small_offsets.register(pa.LargeListType)
@_use_small_offsets.register(pa.ListType)
def _(kind: pa.ListType) -> pa.DataType:
    return pa.list_(kind.value_field.with_type(_use_small_offsets(kind.value_type)))


@_use_small_offsets.register
def _(kind: pa.MapType) -> pa.DataType:
    return pa.map_(
        kind.key_field.with_type(_use_small_offsets(kind.key_type)),
        kind.item_field.with_type(_use_small_offsets(kind.item_type)),
    )
