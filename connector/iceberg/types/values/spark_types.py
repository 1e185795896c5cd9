"""Columns of a table -> the same as Spark can carry them, and back. On executors; exact both ways.

Spark has no time of day, no nanoseconds, no uuid and no bytes of fixed length: they travel as their stored numbers, as
text and as bytes of any, at whatever depth.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from serde.arrays import children
from serde.connect.values.binary_values import text_to_uuid

_LeafConversion = Callable[[pa.Array, pa.DataType], pa.Array]


_SPARK_LEAF_TYPES: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_time, pa.int64()),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns", pa.int64()),
    (lambda kind: isinstance(kind, pa.UuidType), pa.string()),
    (pa.types.is_fixed_size_binary, pa.binary()),
)


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark carries values of `kind` in."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    return next((instead for matches, instead in _SPARK_LEAF_TYPES if matches(kind)), kind)


def to_spark(column: pa.Array) -> pa.Array:
    """Return a column of a table in its `spark_type` type."""
    return _rebuild_column(column, spark_type(column.type), _leaf_to_spark)


def from_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of Spark's in the table's type: the other way round."""
    return _rebuild_column(column, kind, _leaf_from_spark)


def _leaf_to_spark(column: pa.Array, target: pa.DataType) -> pa.Array:
    return convert(column, target)[0] if isinstance(column.type, pa.UuidType) else column.cast(target)


def _leaf_from_spark(column: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(target, pa.UuidType):
        return text_to_uuid(column)[0]
    if pa.types.is_integer(column.type) and pa.types.is_temporal(target):
        return column.cast(target)
    return convert(column, target)[0]


def _rebuild_column(column: pa.Array, target: pa.DataType, leaf: _LeafConversion) -> pa.Array:
    if column.type.equals(target):
        return column
    null_rows = pc.is_null(column) if column.null_count else None
    if pa.types.is_struct(target):
        pairs = zip(children(column), target, strict=True)
        made = [_rebuild_column(child, field.type, leaf) for child, field in pairs]
        return pa.StructArray.from_arrays(made, fields=list(target), mask=null_rows)
    if pa.types.is_list(target):
        offsets = pa.array(column.offsets.to_numpy())
        return pa.ListArray.from_arrays(
            offsets, _rebuild_column(column.values, target.value_type, leaf), target, mask=null_rows
        )
    if pa.types.is_map(target):
        offsets = pa.array(column.offsets.to_numpy())
        keys = _rebuild_column(column.keys, target.key_type, leaf)
        items = _rebuild_column(column.items, target.item_type, leaf)
        return pa.MapArray.from_arrays(offsets, keys, items, target, mask=null_rows)
    return leaf(column, target)
