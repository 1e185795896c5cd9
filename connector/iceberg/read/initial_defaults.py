"""A column that a data file lacks -> its `initial-default`, for all rows of the file; null without one. Pure.

Likewise of new rows one that events lack: its `write-default`.

Source: Iceberg's spec, "Default values", and "Appendix D: Single-value serialization" for the JSON of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa

from connector.errors import FatalError
from connector.iceberg.types.schemas.schema_json import iter_fields
from connector.iceberg.types.values.conversion import convert

FIELD_ID_KEY = b"PARQUET:field_id"
_INITIAL_DEFAULT, _WRITE_DEFAULT = "initial-default", "write-default"


def field_id_of(field: pa.Field) -> int | None:
    """Return a field's id, None where its file has none."""
    found = (field.metadata or {}).get(FIELD_ID_KEY)
    return None if found is None else int(found)


@lru_cache(maxsize=1024)
def parse_initial_defaults(schema_json: str) -> Mapping[int, Any]:
    """Return the initial defaults of a table's columns as JSON has them, by field id, at any depth."""
    return _parse_defaults(schema_json, _INITIAL_DEFAULT)


@lru_cache(maxsize=1024)
def parse_write_defaults(schema_json: str) -> Mapping[int, Any]:
    """Return the defaults of columns that a writer has no values for, likewise."""
    return _parse_defaults(schema_json, _WRITE_DEFAULT)


def _parse_defaults(schema_json: str, name: str) -> Mapping[int, Any]:
    fields = (field for _, field in iter_fields(orjson.loads(schema_json)))
    return {field["id"]: field[name] for field in fields if field.get(name) is not None}


def default_column(field: pa.Field, count: int, defaults: Mapping[int, Any]) -> pa.Array:
    """Return a column of `count` rows from files, or for rows, that lack it.

    Raises:
        FatalError: its default is none of its type's values.
    """
    own = field_id_of(field)
    default = None if own is None else defaults.get(own)
    if default is None:
        return pa.nulls(count, field.type)
    if pa.types.is_struct(field.type):
        # A default of a struct says that it is there; the values within have their own.
        inside = [default_column(child, count, defaults) for child in field.type]
        return pa.StructArray.from_arrays(inside, fields=list(field.type))
    one = _parse_default(field.type, default)
    if len(one) != 1 or one.null_count:
        raise FatalError(
            f"column {field.name}: its default cannot be read as {field.type}; report it with the column's type and "
            "default"
        )
    return one.take(pa.array(bytes(count), pa.int8()) if count else pa.array([], pa.int8()))


def _parse_default(kind: pa.DataType, default: Any) -> pa.Array:
    """Return the one value of this JSON; null or nothing where it is none of the type."""
    types = pa.types
    if types.is_nested(kind):
        return pa.array([], kind)
    if isinstance(default, str) and (types.is_binary(kind) or types.is_fixed_size_binary(kind)):
        return pa.array([bytes.fromhex(default)], kind)
    return convert(pa.array([default]), kind)[0]
