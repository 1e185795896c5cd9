"""Shapes of events and settings -> what a table looks like when it is made (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from connector.errors import DataFault, FatalError
from connector.iceberg.evolution import union
from connector.iceberg.layout import TableLayout
from connector.iceberg.types import arrow_schema
from connector.settings import TableSettings
from connector.settings.table_schema import Column, Nested
from connector.sink.plan import IS_CURRENT, VALID_FROM, VALID_TO, Need


def declared(columns: Iterable[Column]) -> pa.Schema:
    """Give the columns that the settings declare, in Arrow's types."""
    ids = count(1)
    fields = [
        {"id": next(ids), "name": column.name, "required": column.required, "type": _declared(column.type, ids)}
        for column in columns
    ]
    return arrow_schema(Schema.model_validate({"type": "struct", "fields": fields}))


def _declared(kind: str | Nested, ids: Iterator[int]) -> str | dict[str, Any]:
    """Give a declared type as Iceberg's JSON has it (spec, "Schemas")."""
    if isinstance(kind, str):
        return kind
    parts = [(name, next(ids), _declared(inner, ids)) for name, inner in kind.parts]
    if kind.kind == "struct":
        fields = [{"id": place, "name": name, "required": False, "type": inner} for name, place, inner in parts]
        return {"type": "struct", "fields": fields}
    named = {key: value for name, place, inner in parts for key, value in ((f"{name}-id", place), (name, inner))}
    return {"type": kind.kind, **named, f"{kind.parts[-1][0]}-required": False}


def terms_of(by_table: Mapping[str, tuple[str, ...]], name: str, needs: list[Need]) -> tuple[str, ...] | None:
    """Give the terms that are configured for this very table, by its name or a topic's; None without any."""
    return next((by_table[key] for key in (name, *(need.topic for need in needs)) if key in by_table), None)


def identifiers(needs: list[Need], rule: TableSettings) -> tuple[str, ...]:
    """Give the fields of the events' record keys, none where tables get no identifier fields.

    Raises:
        DataFault: keys differ in their fields.
    """
    # Records without key beside others that have one are single faults, not another kind of table.
    keys = {tuple(need.key.names) for need in needs if need.key is not None}
    if not rule.create_identifier_fields or not keys:
        return ()
    if len(keys) > 1:
        raise DataFault(f"its events have keys of different fields: {', '.join(map(str, sorted(keys)))}")
    return keys.pop()


def with_keys(columns: pa.Schema, needs: list[Need], keys: tuple[str, ...]) -> pa.Schema:
    """Add key fields that the rows do not have, in front, and take the key's types for those that they have.

    Raises:
        DataFault: a key field cannot tell rows apart.
    """
    shapes = [pa.struct([need.key.field(name) for name in keys]) for need in needs if need.key is not None and keys]
    found = union(shapes)
    if any(pa.types.is_nested(field.type) or pa.types.is_floating(field.type) for field in found):
        raise DataFault("its key has a field of a type that identifies nothing (nested, or floating point)")
    types = dict(zip(found.names, found.types, strict=True))
    front = [field for field in found if field.name not in columns.names]
    return pa.schema([*front, *(field.with_type(types.get(field.name, field.type)) for field in columns)])


def required_of(needs: list[Need]) -> frozenset[str]:
    """Give the columns that a schema block says are never null."""
    return frozenset(name for need in needs for name, optional in need.optional.items() if not optional)


def with_validity(columns: pa.Schema) -> pa.Schema:
    """Add the columns that tell when a version was true.

    Raises:
        DataFault: the events have such fields themselves.
    """
    time = pa.timestamp("us", "UTC")
    added = (pa.field(VALID_FROM, time), pa.field(VALID_TO, time), pa.field(IS_CURRENT, pa.bool_()))
    taken = [field.name for field in added if field.name in columns.names]
    if taken:
        raise DataFault(f"its events have a field {', '.join(taken)}, which a table with history has for itself")
    return pa.schema([*columns, *added])


def business_key(layout: TableLayout, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Give the key columns of a table that keeps history: versions of one key differ in their time.

    Raises:
        FatalError: the table is there, and keeps no history.
    """
    missing = [name for name in (VALID_FROM, VALID_TO, IS_CURRENT) if name not in layout.columns.names]
    if missing and (ids or layout.keys):
        raise FatalError(f"table {layout.name} has no column {', '.join(missing)}: scd-type=2 needs a table of its own")
    return ids or tuple(name for name in layout.keys if name != VALID_FROM)
