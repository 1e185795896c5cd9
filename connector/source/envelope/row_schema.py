"""An Iceberg schema's JSON -> plain descriptions of its columns, which the wire's side understands (pure).

JSON form: Iceberg's spec, "Schemas" in appendix C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from connector.errors import FatalError
from connector.iceberg.types.dotted_names import Path, find_path
from connector.source.changes.row_key import KeyKind, RowKey
from serde.emit.name_adjustment import adjust_field_name
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct, RowType
from serde.emit.type_mapping import HandlingModes, wire_type

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@attrs.frozen
class RecordKey:
    """A record key: its fields, and where in a row each is found (names from the top on)."""

    record: RowStruct
    paths: tuple[tuple[str, ...], ...]

    @property
    def is_row_id(self) -> bool:
        """Whether the key is the row's own id, which is no column."""
        return not self.paths


ROW_ID_KEY = RecordKey(RowStruct((RowField("_row_id", Primitive("long"), optional=False),)), ())
"""The key of tables without identifier columns whose rows have an id of their own (format version 3)."""


def describe_row_key(row: RowStruct, key: RowKey) -> RecordKey | None:
    """Describe the record key of rows that `key` identifies; None for rows without key."""
    if key.kind == KeyKind.ROW_ID:
        return ROW_ID_KEY
    return describe_key(row, key.columns) if key.columns else None


def describe_row(document: Mapping[str, Any]) -> RowStruct:
    """Describe all columns of a schema or struct, in the table's order."""
    return RowStruct(tuple(_describe_field(field) for field in document["fields"]))


def _describe_field(field: Mapping[str, Any]) -> RowField:
    return RowField(field["name"], describe_type(field["type"]), not field["required"])


def describe_type(kind: str | Mapping[str, Any]) -> RowType:
    """Describe one type."""
    if isinstance(kind, str):
        return _describe_primitive(kind)
    match kind["type"]:
        case "struct":
            return describe_row(kind)
        case "list":
            return RowList(describe_type(kind["element"]), not kind["element-required"])
        case _:
            return RowMap(describe_type(kind["key"]), describe_type(kind["value"]), not kind["value-required"])


def _describe_primitive(name: str) -> Primitive:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return Primitive("decimal", int(decimal[1]), int(decimal[2]))
    return Primitive(re.split(r"[\[(]", name)[0])


def describe_key(row: RowStruct, names: tuple[str, ...]) -> RecordKey:
    """Describe a record key of columns; a dotted name means a field inside structs, unless a column is called so.

    Raises:
        KeyError: there is no such column.
    """
    fields = [_find_field(row, name) for name in names]
    members = (attrs.evolve(member, name=name) for name, (_, member) in zip(names, fields, strict=True))
    return RecordKey(RowStruct(tuple(members)), tuple(path for path, _ in fields))


def _find_field(row: RowStruct, name: str) -> tuple[Path, RowField]:
    path = find_path(_fields_within(row), name, lambda member: _fields_within(member.kind))
    if path is None:
        raise KeyError(name)
    found = RowField(name, row, optional=False)
    for part in path:
        found = _fields_within(found.kind)[part]
    return path, found


def _fields_within(kind: RowType) -> dict[str, RowField]:
    return {member.name: member for member in kind.members} if isinstance(kind, RowStruct) else {}


def check_columns(table: str, row: RowStruct, modes: HandlingModes) -> None:
    """Check that every column has a form on the wire, and a name of its own.

    Raises:
        FatalError: one has none; names the table, the columns and what to do.
    """
    unfit = [f"{path} ({plain.name})" for path, plain in _walk_primitives(row, "") if not _has_wire_type(plain, modes)]
    if unfit:
        columns = ", ".join(unfit)
        raise FatalError(f"table {table}: no Debezium type for {columns}; exclude them with column.exclude.list")
    twice = ", ".join(_find_same_names(row, "", modes))
    if twice:
        raise FatalError(
            f"table {table}: columns {twice} have one name with field.name.adjustment.mode={modes.fields}; "
            "use avro_unicode, which keeps names distinct, or column.exclude.list"
        )


def _walk_primitives(kind: RowType, path: str) -> Iterator[tuple[str, Primitive]]:
    match kind:
        case Primitive():
            yield path, kind
        case RowStruct():
            for member in kind.members:
                yield from _walk_primitives(member.kind, f"{path}.{member.name}" if path else member.name)
        case RowList():
            yield from _walk_primitives(kind.item, path)
        case RowMap():
            yield from _walk_primitives(kind.key, path)
            yield from _walk_primitives(kind.value, path)


def _find_same_names(kind: RowType, path: str, modes: HandlingModes) -> Iterator[str]:
    """Return the fields, at any depth, that have one name on the wire with another one beside them."""
    match kind:
        case RowStruct():
            names = [adjust_field_name(member.name, modes.fields) for member in kind.members]
            for member, name in zip(kind.members, names, strict=True):
                own = f"{path}.{member.name}" if path else member.name
                yield from [own] if names.count(name) > 1 else []
                yield from _find_same_names(member.kind, own, modes)
        case RowList():
            yield from _find_same_names(kind.item, path, modes)
        case RowMap():
            yield from _find_same_names(kind.key, path, modes)
            yield from _find_same_names(kind.value, path, modes)


def _has_wire_type(plain: Primitive, modes: HandlingModes) -> bool:
    try:
        wire_type(plain, modes)
    except ValueError:
        return False
    return True
