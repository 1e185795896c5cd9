"""Iceberg schema -> Arrow columns that are written as Iceberg's ORC, and how values get there. Pure.

Source: Iceberg's spec, "Appendix A: Format-specific Requirements", "ORC": what a column means is told by attributes of
its ORC type, which Arrow's writer takes from the metadata of its fields.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.iceberg.types.values.single_values import to_stored_values
from serde.arrays import children

_UNIT = "iceberg.timestamp-unit"
_BINARY = "iceberg.binary-type"
_ATTRIBUTES: dict[type[IcebergType], dict[str, str]] = {
    TimeType: {"iceberg.long-type": "TIME"},
    TimestampType: {_UNIT: "MICROS"},
    TimestamptzType: {_UNIT: "MICROS"},
    TimestampNanoType: {_UNIT: "NANOS"},
    TimestamptzNanoType: {_UNIT: "NANOS"},
    BinaryType: {_BINARY: "BINARY"},
    UUIDType: {_BINARY: "UUID"},
}


@lru_cache(maxsize=1024)
def build_file_columns(schema_json: str, columns: pa.Schema) -> pa.Schema:
    """Return what the columns of an Iceberg schema (its JSON), which are those of Arrow's here, are written as."""
    fields = Schema.model_validate_json(schema_json).fields
    return pa.schema([_build_field(field, columns.field(at).type) for at, field in enumerate(fields)])


def to_file_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column's values in the type that they are written as."""
    if pa.types.is_struct(kind):
        parts = [to_file_column(part, kind.field(at).type) for at, part in enumerate(children(column))]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_map(kind):
        keys, items = to_file_column(column.keys, kind.key_type), to_file_column(column.items, kind.item_type)
        return pa.MapArray.from_arrays(_copy_offsets(column), keys, items, kind, mask=column.is_null())
    if pa.types.is_list(kind):
        values = to_file_column(column.values, kind.value_type)
        return pa.ListArray.from_arrays(_copy_offsets(column), values, kind, mask=column.is_null())
    if column.type.equals(kind):
        return column
    return to_stored_values(column).cast(kind)


def _build_field(field: NestedField, arrow: pa.DataType) -> pa.Field:
    return _build_column(field.name, field.field_id, field.field_type, arrow, required=field.required)


def _build_column(name: str, number: int, kind: IcebergType, arrow: pa.DataType, *, required: bool) -> pa.Field:
    attributes = {"iceberg.id": str(number), "iceberg.required": "true" if required else "false"}
    if isinstance(kind, FixedType):
        attributes |= {_BINARY: "FIXED", "iceberg.length": str(len(kind))}
    metadata = attributes | _ATTRIBUTES.get(type(kind), {})
    return pa.field(name, _build_type(kind, arrow), nullable=not required, metadata=metadata)


def _build_type(kind: IcebergType, arrow: pa.DataType) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_build_field(each, arrow.field(at).type) for at, each in enumerate(kind.fields)])
        case ListType():
            item, required = kind.element_type, kind.element_required
            return pa.list_(_build_column("element", kind.element_id, item, arrow.value_type, required=required))
        case MapType():
            key = _build_column("key", kind.key_id, kind.key_type, arrow.key_type, required=True)
            required = kind.value_required
            value = _build_column("value", kind.value_id, kind.value_type, arrow.item_type, required=required)
            return pa.map_(key, value)
        case TimeType():
            return pa.int64()
        case UUIDType():
            return pa.binary(16)
    return arrow


def _copy_offsets(column: pa.ListArray) -> pa.Array:
    """Return where the values of each row begin; Arrow takes no mask beside offsets that are a slice."""
    return pa.array(np.asarray(column.offsets))
