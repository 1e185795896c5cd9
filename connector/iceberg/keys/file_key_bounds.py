"""Manifests, and descriptions of new files -> the bounds of the key columns over all live data files. On the driver.

Bounds only ever widen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFileContent
from pyiceberg.types import PrimitiveType

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.manifest_entries import read_manifest_entries
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.intervals import ORDERED_TYPES, parse_interval
from connector.iceberg.keys.key_bounds import KeyBounds

MAX_MANIFESTS = 500
"""Above this many manifests nothing is claimed to be known: reading them would hold up the start."""


def read_key_bounds(table: Table, layout: TableLayout) -> KeyBounds:
    """Read the bounds of the layout's keys over all live data files of the newest snapshot.

    Cost: reads every data manifest once, up to `MAX_MANIFESTS`.

    Raises:
        RetriableError: the store is away, or the manifests went with a newer commit.
        FatalError: a manifest is gone or cannot be read.
    """
    newest = table.snapshot_id
    if newest is None:
        return KeyBounds.nothing()
    metadata = table.metadata()
    snapshot = metadata.snapshot_by_id(newest)
    if snapshot is None:
        return KeyBounds()
    known, columns = KeyBounds.nothing(), _ordered_key_columns(layout)
    with table.reading("the manifests"):
        manifests = snapshot.manifests(metadata.io)
        if len(manifests) > MAX_MANIFESTS:
            return KeyBounds()
        for manifest in manifests:
            for entry in read_manifest_entries(manifest, metadata.io):
                file = entry.data_file
                if file.content == DataFileContent.DATA:
                    known = _widen_by_file(known, columns, file.lower_bounds or {}, file.upper_bounds or {})
    return known


def widen_bounds(known: KeyBounds, layout: TableLayout, descriptions: Iterable[FileDescription]) -> KeyBounds:
    """Return what is known after a commit of files with these descriptions (`write.rolling_file`)."""
    columns = _ordered_key_columns(layout)
    for file in descriptions:
        if file.is_data:
            known = _widen_by_file(known, columns, file.lower_bounds, file.upper_bounds)
    return known


def _ordered_key_columns(layout: TableLayout) -> tuple[tuple[str, int, PrimitiveType], ...]:
    """Return the keys that bounds order: those that rows are replaced by, which need not be the identifier fields."""
    fields = (field for field in layout.schema.fields if field.name in layout.keys)
    return tuple((f.name, f.field_id, f.field_type) for f in fields if isinstance(f.field_type, ORDERED_TYPES))


def _widen_by_file(
    known: KeyBounds,
    columns: Sequence[tuple[str, int, PrimitiveType]],
    lower: Mapping[int, bytes],
    upper: Mapping[int, bytes],
) -> KeyBounds:
    if not known.is_complete or not columns or any(i not in lower or i not in upper for _, i, _ in columns):
        return KeyBounds()
    bounds = {}
    for name, field_id, kind in columns:
        span = parse_interval(kind, lower[field_id], upper[field_id])
        if span is None:
            return KeyBounds()
        low, high = span
        before = known.bounds.get(name, (low, high))
        bounds[name] = (min(before[0], low), max(before[1], high))
    return KeyBounds(is_complete=True, bounds=bounds)
