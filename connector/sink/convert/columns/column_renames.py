"""Fields of events under names that their columns no longer have -> fields of the columns' names (pure).

A table knows the earlier names of its columns by a property, so that events from before a rename find their column
whenever they come. An event that has the new name too means another column by the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from connector.sink.convert.record_keys import RecordKeys
from connector.sink.model.plan import SchemaChange
from serde.arrays import children, choose_values, valid_mask, with_columns
from serde.events.changes import Changes, filter_changes, rename_columns, rename_paths
from serde.events.kinds.cloudevents import CLOUD_EVENT_FIELDS
from serde.events.kinds.sourceless import IMAGES
from serde.faults import Unfit
from serde.json.row_reader import parse_message, unwrap_payload

RENAMES_PROPERTY = "icebridge.renamed-columns"
"""Table property: JSON, earlier name -> the column's name."""

_PAYLOAD = "payload"


def parse_renames(properties: Mapping[str, str]) -> dict[str, str]:
    """Read a table's property; empty without it."""
    return dict(orjson.loads(properties.get(RENAMES_PROPERTY, "{}")))


def format_renames(renames: Mapping[str, str]) -> str:
    """Write the property's value."""
    return orjson.dumps(dict(renames), option=orjson.OPT_SORT_KEYS).decode()


def find_renamed_fields(names: Collection[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Return the names among these that are earlier ones, and the columns'; each column is taken once."""
    renamed: dict[str, str] = {}
    for name in names:
        now = renames.get(name)
        if now is not None and now not in names and now not in renamed.values():
            renamed[name] = now
    return renamed


def follow_renames(change: Changes, renames: Mapping[str, str], columns: Collection[str]) -> Changes:
    """Return the changes with fields under the names that their columns have now.

    Events without schema share their fields, so that some of them have the earlier name and some the new one; the
    earlier one is another column only where the table has it, or an event has values of both.
    """
    names = change.row.type.names
    if not any(name in renames for name in names):
        return change
    fields = dict(zip(names, children(change.row), strict=True))
    if not change.optional:
        fields = _merge_columns(fields, {old: now for old, now in renames.items() if old not in columns})
        gone = pc.is_null(change.row) if change.row.null_count else None
        row = pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=gone)
        change = attrs.evolve(change, row=row)
    return rename_columns(change, find_renamed_fields(list(fields), renames))


def split_reused_names(
    change: Changes, renames: Mapping[str, str], columns: Collection[str], messages: pa.Array
) -> list[tuple[Changes, dict[str, str]]]:
    """Return changes without schema in parts, each with the earlier names that its events have for columns of now.

    An event that has both names means two columns, also where its value under the new one is null: its columns do not
    show that, its message does. Cost: Python for events that have a value under an earlier name and a null beside it.
    """
    names = change.row.type.names
    pairs = [(old, now) for old, now in renames.items() if old in names and old not in columns]
    if change.optional or not pairs:
        return [(change, dict(renames))]
    fields = dict(zip(change.row.type.names, children(change.row), strict=True))
    reused = np.zeros((len(pairs), len(change.rows)), np.bool_)
    for place, (old, now) in enumerate(pairs):
        given = valid_mask(fields[now]) if now in fields else np.zeros(len(change.rows), np.bool_)
        doubtful = np.flatnonzero(valid_mask(fields[old]) & ~given)
        reused[place, doubtful] = [_is_told(messages[int(change.rows[row])].as_py(), now) for row in doubtful]
    _, codes = np.unique(reused, axis=1, return_inverse=True)
    parts = []
    for code in range(int(codes.max(initial=0)) + 1):
        own = codes.reshape(-1) == code
        gone = {old for (old, _), mask in zip(pairs, reused, strict=True) if mask[own].any()}
        part = change if own.all() else filter_changes(change, own)
        absent = {now: pa.nulls(len(part.rows)) for old, now in pairs if old in gone and now not in fields}
        left = {old: now for old, now in renames.items() if old not in gone}
        parts.append((attrs.evolve(part, row=with_columns(part.row, absent)) if absent else part, left))
    return parts


def _is_told(message: bytes | None, name: str) -> bool:
    """Tell whether a row of a message names a column, be it null."""
    try:
        document = unwrap_payload(parse_message(message or b"null"))
    except Unfit:
        return False
    levels = list(_iter_levels(document))
    images = [level.get(image) for level in levels for image in IMAGES]
    return any(isinstance(row, dict) and name in row for row in (*levels, *images))


def _iter_levels(document: object) -> Iterator[dict[str, Any]]:
    """Yield a message, and what is in the frames of TiCDC and of CloudEvents."""
    if not isinstance(document, dict):
        return
    yield document
    if document.keys() == {_PAYLOAD}:
        yield from _iter_levels(document[_PAYLOAD])
    elif document.keys() >= CLOUD_EVENT_FIELDS:
        yield from _iter_levels(unwrap_payload(document["data"]))


def follow_key_renames(keys: RecordKeys, renames: Mapping[str, str]) -> RecordKeys:
    """Return the keys with fields under the names that their columns have now."""
    if not any(name in renames for name in keys.columns):
        return keys
    fields = _merge_columns(keys.columns, renames)
    wanted = find_renamed_fields(list(fields), renames)
    return attrs.evolve(keys, columns={wanted.get(name, name): column for name, column in fields.items()})


def _merge_columns(fields: Mapping[str, pa.Array], renames: Mapping[str, str]) -> dict[str, pa.Array]:
    """Return columns with those of earlier names moved into those of the new ones that are beside them."""
    columns = dict(fields)
    for old, now in renames.items():
        if old not in columns:
            continue
        if now not in columns or pa.types.is_null(columns[now].type):
            columns[now] = columns.pop(old)
            continue
        earlier, later = columns[old], columns[now]
        column, bad = convert(earlier, later.type)
        if bad is None and not pc.any(pc.and_(earlier.is_valid(), later.is_valid())).as_py():
            columns[now] = choose_values(later, column, ~valid_mask(later))
            del columns[old]
    return columns


def rename_shape(need: SchemaChange, renames: Mapping[str, str], known: Collection[str] = ()) -> SchemaChange:
    """Return the shape of events under the names that their columns have now.

    known: earlier names that the table knew already when the events were read. Where it did not, events without schema
    have the earlier name beside the new one for one column.
    """
    fresh = set(renames) - set(known) if not need.optional else set[str]()
    names = {field.name for field in need.row}
    kept = [field for field in need.row if field.name not in fresh or renames[field.name] not in names]
    wanted = find_renamed_fields([field.name for field in kept], renames)
    # Of several earlier names of one column one is enough.
    kept = [field for field in kept if field.name not in fresh or field.name in wanted]
    keys = {} if need.key is None else find_renamed_fields(need.key.names, renames)
    return attrs.evolve(
        need,
        row=pa.struct(_rename(kept, wanted)),
        key=None if need.key is None else pa.struct(_rename(need.key, keys)),
        optional=rename_paths(need.optional, need.row.names, wanted),
        relaxed=frozenset((wanted.get(path[0], path[0]), *path[1:]) for path in need.relaxed),
    )


def _rename(fields: Iterable[pa.Field], wanted: Mapping[str, str]) -> list[pa.Field]:
    return [field.with_name(wanted.get(field.name, field.name)) for field in fields]
