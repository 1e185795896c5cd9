"""Fields of events under names that their columns no longer have -> fields of the columns' names (pure).

A table knows the earlier names of its columns by a property, so that events from before a rename find their column
whenever they come. An event that has the new name too means another column by the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.sink.convert.record_keys import RecordKeys
from connector.sink.model.plan import SchemaChange
from serde.arrays import children
from serde.events.changes import Changes

RENAMES_PROPERTY = "icebridge.renamed-columns"
"""Table property: JSON, earlier name -> the column's name."""


def parse_renames(properties: Mapping[str, str]) -> dict[str, str]:
    """Read a table's property; empty without it."""
    return dict(orjson.loads(properties.get(RENAMES_PROPERTY, "{}")))


def format_renames(renames: Mapping[str, str]) -> str:
    """Write the property's value."""
    return orjson.dumps(dict(renames), option=orjson.OPT_SORT_KEYS).decode()


def find_renamed_fields(names: Collection[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Return the names among these that are earlier ones, and the columns'; each column is taken once."""
    found: dict[str, str] = {}
    for name in names:
        now = renames.get(name)
        if now is not None and now not in names and now not in found.values():
            found[name] = now
    return found


def follow_renames(change: Changes, renames: Mapping[str, str]) -> Changes:
    """Return the changes with fields under the names that their columns have now."""
    wanted = find_renamed_fields(change.row.type.names, renames) if renames else {}
    if not wanted:
        return change
    gone = pc.is_null(change.row) if change.row.null_count else None
    row = pa.StructArray.from_arrays(children(change.row), fields=_rename(change.row.type, wanted), mask=gone)
    optional = {wanted.get(name, name): flag for name, flag in change.optional.items()}
    documents = frozenset(wanted.get(name, name) for name in change.documents)
    return attrs.evolve(change, row=row, optional=optional, documents=documents)


def follow_key_renames(keys: RecordKeys, renames: Mapping[str, str]) -> RecordKeys:
    """Return the keys with fields under the names that their columns have now."""
    wanted = find_renamed_fields(list(keys.columns), renames) if renames else {}
    if not wanted:
        return keys
    return attrs.evolve(keys, columns={wanted.get(name, name): column for name, column in keys.columns.items()})


def rename_shape(need: SchemaChange, renames: Mapping[str, str]) -> SchemaChange:
    """Return the shape of events under the names that their columns have now."""
    wanted = find_renamed_fields(need.row.names, renames)
    keys = {} if need.key is None else find_renamed_fields(need.key.names, renames)
    return attrs.evolve(
        need,
        row=pa.struct(_rename(need.row, wanted)),
        key=None if need.key is None else pa.struct(_rename(need.key, keys)),
        optional={wanted.get(name, name): flag for name, flag in need.optional.items()},
        relaxed=frozenset(wanted.get(name, name) for name in need.relaxed),
    )


def _rename(kind: pa.StructType, wanted: Mapping[str, str]) -> list[pa.Field]:
    return [field.with_name(wanted.get(field.name, field.name)) for field in kind]
