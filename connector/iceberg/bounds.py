"""A snapshot's own manifests -> the column bounds of the data files it added and removed. On the driver; metadata only.

Read with PyIceberg: Iceberg's Java keeps no bounds of removed files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType

from connector.causes import Cause, is_for_good
from connector.errors import FatalError, RetriableError
from connector.iceberg.spans import ORDERED, Span
from connector.iceberg.storage import storage
from connector.iceberg.table import Table


def changed_bounds(
    table: Table, snapshot_id: int, schema: Schema, columns: Sequence[str]
) -> dict[str, dict[str, Span]]:
    """Give path -> column -> lowest and highest value, for columns without nulls whose bounds are known.

    Only top-level columns of types with an order that Iceberg's bounds keep; strings may be cut, outwards.

    Raises:
        RetriableError: the store is away.
        FatalError: a manifest is gone, or the store refuses it.
    """
    fields = [f for f in schema.fields if f.name in columns and isinstance(f.field_type, ORDERED)]
    if not fields:
        return {}
    place = str(table.java.snapshot(snapshot_id).manifestListLocation())
    properties = table.io_properties()
    with _reading(f"reading the manifests of {table.name} at snapshot {snapshot_id}"):
        io = storage(properties, place)
        manifests = [m for m in read_manifest_list(io.new_input(place)) if m.added_snapshot_id == snapshot_id]
        return {
            entry.data_file.file_path: _spans(entry.data_file, fields)
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)
        }


@contextmanager
def _reading(doing: str) -> Iterator[None]:
    """Raise ours where a file in storage cannot be read.

    Raises:
        RetriableError: the store is away.
        FatalError: a file is gone, or the store refuses it.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        raise FatalError(f"{doing}: {type(error).__name__}: {error}") from error
    except OSError as error:
        refused = is_for_good([Cause(type(error).__name__, str(error))])
        raise (FatalError if refused else RetriableError)(f"{doing}: {type(error).__name__}: {error}") from error


def _spans(file: DataFile, fields: Sequence[NestedField]) -> dict[str, Span]:
    low: Mapping[int, bytes] = file.lower_bounds or {}
    high: Mapping[int, bytes] = file.upper_bounds or {}
    nulls: Mapping[int, int] = file.null_value_counts or {}
    return {
        field.name: (_value(field, low[field.field_id]), _value(field, high[field.field_id]))
        for field in fields
        if field.field_id in low and field.field_id in high and nulls.get(field.field_id) == 0
    }


def _value(field: NestedField, stored: bytes) -> Any:
    return from_bytes(cast("PrimitiveType", field.field_type), stored)
