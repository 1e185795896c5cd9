"""A snapshot's own manifests -> the column bounds of the data files it added and removed. On the driver; metadata only.

Read with PyIceberg: Iceberg's Java keeps no bounds of removed files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pyiceberg.manifest import DataFile, read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType

from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.catalog.manifest_entries import read_manifest_entries
from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.intervals import ORDERED_TYPES, Interval, parse_interval


def read_changed_bounds(
    table: Table, snapshot_id: int, schema: Schema, columns: Sequence[str]
) -> dict[str, dict[str, Interval]]:
    """Return path -> column -> lowest and highest value, for columns without nulls whose bounds are known.

    Only top-level columns of types with an order that Iceberg's bounds keep; strings may be cut, outwards.

    Raises:
        RetriableError: the store is away, or the manifests went with a newer commit.
        FatalError: a manifest is gone, or the store refuses it.
    """
    fields = [f for f in schema.fields if f.name in columns and isinstance(f.field_type, ORDERED_TYPES)]
    if not fields:
        return {}
    place = str(table.java.snapshot(snapshot_id).manifestListLocation())
    properties = table.io_properties()
    with table.reading(f"the manifests of snapshot {snapshot_id}"):
        io = file_io_for(properties, place)
        manifests = [m for m in read_manifest_list(io.new_input(place)) if m.added_snapshot_id == snapshot_id]
        return {
            entry.data_file.file_path: _file_intervals(entry.data_file, fields)
            for manifest in manifests
            for entry in read_manifest_entries(manifest, io, discard_deleted=False)
        }


def _file_intervals(file: DataFile, fields: Sequence[NestedField]) -> dict[str, Interval]:
    low: Mapping[int, bytes] = file.lower_bounds or {}
    high: Mapping[int, bytes] = file.upper_bounds or {}
    nulls: Mapping[int, int] = file.null_value_counts or {}
    known = (field for field in fields if nulls.get(field.field_id) == 0)
    spans = ((field, low.get(field.field_id), high.get(field.field_id)) for field in known)
    found = ((field.name, parse_interval(cast("PrimitiveType", field.field_type), *ends)) for field, *ends in spans)
    return {name: span for name, span in found if span is not None}
