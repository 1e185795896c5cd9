"""Shapes of events and settings -> what a table looks like when it is made (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from connector.errors import DataFault, FatalError
from connector.iceberg.types.nested_columns import find_field, find_path, leaf_names, set_type
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, to_arrow_schema
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.schemas.schema_evolution import union_shapes
from connector.settings import TableSettings
from connector.settings.iceberg.new_tables.declared_schema import DeclaredColumn, NestedType
from connector.sink.convert.columns.field_matching import match_names
from connector.sink.model.plan import IS_CURRENT, VALID_FROM, VALID_TO, SchemaChange


def build_declared_schema(columns: Iterable[DeclaredColumn]) -> pa.Schema:
    """Return the columns that the settings declare, in Arrow's types."""
    ids = count(1)
    fields = [
        {"id": next(ids), "name": column.name, "required": column.required, "type": _to_iceberg_type(column.type, ids)}
        for column in columns
    ]
    return to_arrow_schema(Schema.model_validate({"type": "struct", "fields": fields}))


def _to_iceberg_type(kind: str | NestedType, ids: Iterator[int]) -> str | dict[str, Any]:
    """Return a declared type as Iceberg's JSON has it (spec, "Schemas")."""
    if isinstance(kind, str):
        return kind
    parts = [(name, next(ids), _to_iceberg_type(inner, ids)) for name, inner in kind.parts]
    if kind.kind == "struct":
        fields = [{"id": place, "name": name, "required": False, "type": inner} for name, place, inner in parts]
        return {"type": "struct", "fields": fields}
    named = {key: value for name, place, inner in parts for key, value in ((f"{name}-id", place), (name, inner))}
    return {"type": kind.kind, **named, f"{kind.parts[-1][0]}-required": False}


def find_terms(
    by_table: Mapping[str, tuple[str, ...]], names: Iterable[str], needs: list[SchemaChange]
) -> tuple[str, ...] | None:
    """Return the terms that are configured for this very table, by its names or a topic's; None without any."""
    return next((by_table[key] for key in (*names, *(need.topic for need in needs)) if key in by_table), None)


def find_identifier_fields(needs: list[SchemaChange], rule: TableSettings) -> tuple[str, ...]:
    """Return the fields of the events' record keys, none where tables get no identifier fields; of structs theirs.

    Raises:
        DataFault: keys differ in their fields.
    """
    # Records without key beside others that have one are single faults, not another kind of table.
    keys = {
        tuple(name for f in need.key for name in leaf_names(f.type, f.name)) for need in needs if need.key is not None
    }
    if not rule.new_tables.create_identifier_fields or not keys:
        return ()
    if len(keys) > 1:
        raise DataFault(
            f"its events have keys of different fields: {', '.join(map(str, sorted(keys)))}; name the key's columns "
            "(primary.key.fields), or give the topics tables of their own"
        )
    return keys.pop()


def choose_key(
    needs: list[SchemaChange], columns: pa.Schema, settings: TableSettings, names: Sequence[str]
) -> tuple[str, ...]:
    """Return the key of a new table or index: the configured columns, else the fields of the events' record keys.

    Args:
        needs: the shapes of its events.
        columns: their columns.
        settings: what is configured for tables.
        names: the names by which the table's own settings may call it.

    Raises:
        DataFault: no event has a column that is configured, or keys differ in their fields.
    """
    if settings.keys.mode == "none":
        return ()
    configured = settings.keys.of(*names)
    if not configured:
        return find_identifier_fields(needs, settings)
    from_record = settings.keys.key_source(*names) == "record"
    fields = union_shapes(need.key for need in needs if need.key is not None) if from_record else columns
    if settings.case_insensitive:
        configured = match_names(configured, [field.name for field in fields])
    try:
        return expand_key(fields, configured)
    except KeyError as missing:
        raise DataFault(
            f"its events have no field {', '.join(missing.args)}, which is configured as its key; name fields that "
            "they have (primary.key.fields, id-columns)"
        ) from missing


def with_keys(columns: pa.Schema, needs: list[SchemaChange], keys: tuple[str, ...]) -> pa.Schema:
    """Add key fields that the rows do not have, in front, and take the key's types for those that they have.

    Raises:
        DataFault: a key field cannot tell rows apart.
    """
    key_fields, fields = union_shapes(need.key for need in needs if need.key is not None), list(columns)
    for name in reversed(keys):
        path = find_path(key_fields, name)
        if path is not None:
            try:
                fields = set_type(fields, path, find_field(key_fields, name).type)
            except ValueError as wrong:
                raise DataFault(f"its key has a field {name}, and in its rows {wrong}") from wrong
    schema = pa.schema(fields)
    unfit = [
        name
        for name in keys
        if find_path(schema, name) is not None and not is_valid_key_type(find_field(schema, name).type)
    ]
    if unfit:
        raise DataFault(
            f"its key has a field that cannot be an identifier field ({', '.join(unfit)}: list, map, variant or "
            "floating point); name other columns (primary.key.fields), or append (debezium.sink.iceberg.upsert=false)"
        )
    return schema


def is_valid_key_type(kind: pa.DataType) -> bool:
    """Tell whether values of a type can tell rows apart."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or kind == VARIANT_ARROW_TYPE)


def expand_key(fields: Iterable[pa.Field], names: Iterable[str]) -> tuple[str, ...]:
    """Return configured key columns with the fields of structs in their place.

    Raises:
        KeyError: the names that are none of the fields.
    """
    fields = list(fields)
    names = list(names)
    missing = [name for name in names if find_path(fields, name) is None]
    if missing:
        raise KeyError(*missing)
    schema = pa.schema(fields)
    return tuple(dict.fromkeys(leaf for name in names for leaf in leaf_names(find_field(schema, name).type, name)))


def find_required_columns(needs: list[SchemaChange]) -> frozenset[str]:
    """Return the columns that a schema block says are never null."""
    return frozenset(field.name for need in needs for field in need.row if not need.optional.get(field.name, True))


def with_validity(columns: pa.Schema) -> pa.Schema:
    """Add the columns that tell when a version was true.

    Raises:
        DataFault: the events have such fields themselves.
    """
    time = pa.timestamp("us", "UTC")
    added = (pa.field(VALID_FROM, time), pa.field(VALID_TO, time), pa.field(IS_CURRENT, pa.bool_()))
    conflicting = [field.name for field in added if field.name in columns.names]
    if conflicting:
        raise DataFault(
            f"its events have a field {', '.join(conflicting)}, which a table with scd-type=2 reserves; rename the "
            "column at the source, or set scd-type=1"
        )
    return pa.schema([*columns, *added])


def scd2_key(layout: RowLayout, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key columns of a table that keeps history: versions of one key differ in their time.

    Raises:
        FatalError: the table is there, and keeps no history.
    """
    missing = [name for name in (VALID_FROM, VALID_TO, IS_CURRENT) if name not in layout.columns.names]
    if missing and (ids or layout.keys):
        raise FatalError(
            f"table {layout.name} has no column {', '.join(missing)}; scd-type=2 needs a table that was created "
            "with it: write to another table, or set scd-type=1"
        )
    return ids or tuple(name for name in layout.keys if name != VALID_FROM)
