"""An Iceberg schema's JSON -> plain descriptions of its columns, which the wire's side understands (pure).

JSON form: Iceberg's spec, "Schemas" in appendix C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from connector.errors import FatalError
from serde.emit.name_adjustment import field_name
from serde.emit.row_schema import Items, Kind, Member, Pairs, Plain, Record
from serde.emit.type_mapping import Modes, form

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@attrs.frozen
class Key:
    """A record key: its fields, and where in a row each is found (names from the top on)."""

    record: Record
    paths: tuple[tuple[str, ...], ...]


def record(document: Mapping[str, Any]) -> Record:
    """Describe all columns of a schema or struct, in the table's order."""
    return Record(tuple(_member(field) for field in document["fields"]))


def _member(field: Mapping[str, Any]) -> Member:
    return Member(field["name"], kind(field["type"]), not field["required"])


def kind(made: str | Mapping[str, Any]) -> Kind:
    """Describe one type."""
    if isinstance(made, str):
        return _plain(made)
    match made["type"]:
        case "struct":
            return record(made)
        case "list":
            return Items(kind(made["element"]), not made["element-required"])
        case _:
            return Pairs(kind(made["key"]), kind(made["value"]), not made["value-required"])


def _plain(name: str) -> Plain:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return Plain("decimal", int(decimal[1]), int(decimal[2]))
    return Plain(re.split(r"[\[(]", name)[0])


def key(row: Record, names: tuple[str, ...]) -> Key:
    """Describe a record key of columns; a dotted name means a field inside structs, unless a column is called so.

    Raises:
        KeyError: there is no such column.
    """
    found = [_found(row, name) for name in names]
    members = (attrs.evolve(member, name=name) for name, (_, member) in zip(names, found, strict=True))
    return Key(Record(tuple(members)), tuple(path for path, _ in found))


def _found(row: Record, name: str) -> tuple[tuple[str, ...], Member]:
    by_name = {member.name: member for member in row.members}
    if name in by_name:
        return (name,), by_name[name]
    head, dot, rest = name.partition(".")
    inside = by_name[head].kind if dot else None
    if not isinstance(inside, Record):
        raise KeyError(name)
    path, member = _found(inside, rest)
    return (head, *path), member


def check(table: str, row: Record, modes: Modes) -> None:
    """See that every column has a form on the wire, and a name of its own.

    Raises:
        FatalError: one has none; names the table, the columns and what to do.
    """
    unfit = [f"{path} ({plain.name})" for path, plain in _plains(row, "") if not _has_form(plain, modes)]
    if unfit:
        columns = ", ".join(unfit)
        raise FatalError(f"table {table}: no Debezium type for {columns}; leave them out with column.exclude.list")
    names = [field_name(member.name, modes.fields) for member in row.members]
    twice = ", ".join(m.name for m, name in zip(row.members, names, strict=True) if names.count(name) > 1)
    if twice:
        raise FatalError(
            f"table {table}: columns {twice} have one name with field.name.adjustment.mode={modes.fields}; "
            "avro_unicode tells any two apart, column.exclude.list leaves one out"
        )


def _plains(made: Kind, path: str) -> Iterator[tuple[str, Plain]]:
    match made:
        case Plain():
            yield path, made
        case Record():
            for member in made.members:
                yield from _plains(member.kind, f"{path}.{member.name}" if path else member.name)
        case Items():
            yield from _plains(made.item, path)
        case Pairs():
            yield from _plains(made.key, path)
            yield from _plains(made.value, path)


def _has_form(plain: Plain, modes: Modes) -> bool:
    try:
        form(plain, modes)
    except ValueError:
        return False
    return True
