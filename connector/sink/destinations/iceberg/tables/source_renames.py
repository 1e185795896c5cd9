"""Shapes of events with columns that are new to their table -> the earlier names of the source's columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connector.sink.destinations.iceberg.tables.source_schemas import SourceSchemas
from connector.sink.model.plan import SchemaChange
from serde.events.changes import DELETED_COLUMN


def find_source_renames(
    schemas: SourceSchemas, needs: Sequence[SchemaChange], columns: Collection[str] | None, prefix: str
) -> dict[str, str]:
    """Return the earlier names of the source's columns (earlier name -> name), if events have new columns.

    A table that is about to be created has no columns yet (None) and takes every rename known so far. `prefix` is that
    of the columns that unwrapping adds, which no source table has.
    """
    renames: dict[str, str] = {}
    for topic in sorted({need.topic for need in needs}):
        names = {field.name for need in needs if need.topic == topic for field in need.row}
        added = {name for name in names if name == DELETED_COLUMN or (prefix and name.startswith(prefix))}
        new = set[str]() if columns is None else names - added - set(columns)
        if new or columns is None:
            renames |= schemas.find_names(topic, new).current
    return renames
