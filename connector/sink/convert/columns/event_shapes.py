"""Shapes of events -> shapes as a table would take them in (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, is_variant_candidate
from connector.iceberg.types.values.conversion import convert
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import children
from serde.events.changes import DELETED_COLUMN, Changes


def drop_absent_fields(shape: pa.StructType, change: Changes) -> pa.StructType:
    """Return a shape without the fields that none of these changes has: events of other tables brought them."""
    if change.optional:
        return shape
    empty = {f.name for f, c in zip(change.row.type, children(change.row), strict=True) if c.null_count == len(c)}
    return pa.struct([field for field in shape if field.name not in empty])


def set_variant_types(shape: pa.StructType, texts: frozenset[str], table: TablePlan | None) -> pa.StructType:
    """Return the shape with what becomes a variant: nested fields, and texts that are JSON by their schema.

    Columns that the table has keep their types.
    """
    there = frozenset[str]() if table is None else set(table.layout.columns.names) - table.layout.variants
    return pa.struct(
        [
            f.with_type(VARIANT_ARROW_TYPE)
            if f.name not in there and (f.name in texts or is_variant_candidate(f.type))
            else f
            for f in shape
        ]
    )


def narrow_to_table(row: pa.StructArray, shape: pa.StructType, columns: pa.Schema) -> pa.StructType:
    """Return the shape of events without schema block: numbers have the table's type where their values fit it.

    JSON knows whole numbers and others, no widths: a narrow column is not widened before a value needs it.
    """
    kinds = {field.name: field.type for field in columns}
    return _narrow_fields(row, shape, kinds)


def _narrow_fields(row: pa.StructArray, shape: pa.StructType, kinds: Mapping[str, pa.DataType]) -> pa.StructType:
    found = dict(zip(row.type.names, children(row), strict=True))
    return pa.struct(
        [
            f.with_type(_narrow_type(found[f.name], f.type, kinds[f.name]))
            if f.name in kinds and f.name in found
            else f
            for f in shape
        ]
    )


def _narrow_type(column: pa.Array, found: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """Return the type that was found for a column, or for what is in it, with the table's numbers where these do."""
    types = pa.types
    if types.is_float32(kind):
        return kind
    if types.is_integer(kind) and types.is_integer(found) and kind != found:
        return kind if convert(column, kind)[1] is None else found
    if types.is_struct(kind) and types.is_struct(found):
        return _narrow_fields(column, found, {field.name: field.type for field in kind})
    if types.is_list(kind) and types.is_list(found):
        return pa.list_(found.value_field.with_type(_narrow_type(column.flatten(), found.value_type, kind.value_type)))
    return found


def drop_excluded(shape: pa.StructType, excluded: frozenset[str]) -> pa.StructType:
    """Return the shape without the columns that are left out by option."""
    return pa.struct([field for field in shape if field.name not in excluded]) if excluded else shape


def find_excluded(table: TablePlan, plan: BatchPlan) -> frozenset[str]:
    """Return the columns that are left out by option, but those of the key, and what says that a row is deleted.

    A table that has them from before gets no values of theirs.
    """
    return plan.excluded_columns - table.layout.key_columns - {DELETED_COLUMN}
