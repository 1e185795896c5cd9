"""A table's columns and its key -> why the key identifies no rows, or none that Spark can look up (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from connector.iceberg.types.nested_columns import find_field
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.sink.destinations.table_schema import is_valid_key_type


def find_composite_keys(columns: pa.Schema, keys: Sequence[str]) -> str | None:
    """Say that a key column is a list, map or variant; None if none is."""
    composite = [name for name in keys if name in columns.names and _has_parts(columns.field(name).type)]
    if not composite:
        return None
    return (
        f"its key has a column of a type that identifies nothing ({', '.join(composite)}: list, map or variant): "
        "name others in iceberg.tables.default-id-columns, or set write-mode=append"
    )


def find_nested_keys(columns: pa.Schema, keys: Sequence[str]) -> list[str]:
    """Return the key columns that are fields within structs."""
    return [name for name in keys if name not in columns.names]


def find_lookup_fault(columns: pa.Schema, keys: Sequence[str]) -> str | None:
    """Say why Spark cannot look rows up by this key; None if it can."""
    fault, nested = find_composite_keys(columns, keys), find_nested_keys(columns, keys)
    if fault is not None or not nested:
        return fault
    where = f"its key has fields within structs ({', '.join(nested)})"
    times = [field.name for field in columns if _has_time(field.type)]
    if times:
        return (
            f"{where}, and Spark, which looks rows up by them, reads no structs beside times ({', '.join(times)}): "
            "name columns of the top level in iceberg.tables.default-id-columns, or set upsert=false"
        )
    unfit = [name for name in nested if not is_valid_key_type(find_field(columns, name).type)]
    return f"{where}, of a type that identifies nothing (list, map or floating point): name others" if unfit else None


def _has_parts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind) or kind == VARIANT_ARROW_TYPE)


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        return any(_has_time(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_time(kind))
