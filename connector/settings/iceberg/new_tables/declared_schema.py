"""properties -> the declared shape of the one table that a sink makes: columns with Iceberg's types, and its place.

Names and meaning: `schema.columns` and `table_location` of Data Prepper's Iceberg sink, as one line.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Literal

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TEXT, InvalidValue, ValueType
from connector.settings.iceberg.routing import RouteSettings

_PLAIN = frozenset({"boolean", "int", "long", "float", "double", "string", "uuid", "binary", "date", "time"})
_PLAIN |= {"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIXED = re.compile(r"fixed[\[(]\s*(\d{1,9})\s*[\])]")
_MAX_DIGITS = 38
_NESTED = re.compile(r"(struct|list|map)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r"([^\s:]+)\s*:\s*(.+)", re.DOTALL)
_PAIR = 2
_DEEPEST = 100
_TODO = (
    "write name type [required], ...; types are Iceberg's: long, string, decimal(9,2), timestamptz, list<long>, "
    "map<string, long>, struct<a: long, b: string> ..."
)


@attrs.frozen
class NestedType:
    """A declared struct, list or map: its fields by name, or `element`, or `key` and `value`."""

    kind: Literal["struct", "list", "map"]
    parts: tuple[tuple[str, str | NestedType], ...]

    def __str__(self) -> str:
        named = self.kind == "struct"
        return f"{self.kind}<{', '.join(f'{name}: {type_}' if named else str(type_) for name, type_ in self.parts)}>"


@attrs.frozen
class DeclaredColumn:
    """A declared column; `type` is Iceberg's name of it, as in its JSON, where it is not nested."""

    name: str
    type: str | NestedType
    required: bool

    def __str__(self) -> str:
        return f"{self.name} {self.type}{' required' if self.required else ''}"


def _parse_columns(text: str) -> tuple[DeclaredColumn, ...]:
    if max(accumulate((letter in "(<[") - (letter in ")>]") for letter in text), default=0) > _DEEPEST:
        raise InvalidValue("{} is nested too deeply", f"nest types in each other {_DEEPEST} times at most")
    columns = tuple(_parse_column(part) for part in _split_columns(text))
    if len({column.name for column in columns}) < len(columns):
        raise InvalidValue("{} names a column twice", _TODO)
    return columns


def _split_columns(text: str) -> list[str]:
    """Split at the commas that are in no brackets; empty pieces are left out."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces if piece.strip()]


def _parse_column(text: str) -> DeclaredColumn:
    match = re.fullmatch(r"(\S+)\s+(.+?)(\s+required)?", text, re.IGNORECASE | re.DOTALL)
    if match is None:
        raise InvalidValue("{} is not a list of columns", _TODO)
    return DeclaredColumn(match[1], _parse_type(match[2].strip()), match[3] is not None)


def _parse_type(text: str) -> str | NestedType:
    nested = _NESTED.fullmatch(text)
    if nested:
        return _parse_nested(nested[1].lower(), _split_columns(nested[2]))
    text = text.lower()
    if text in _PLAIN:
        return text
    digits = _DECIMAL.fullmatch(text)
    if digits and 0 < int(digits[1]) <= _MAX_DIGITS and int(digits[2]) <= int(digits[1]):
        return f"decimal({digits[1]}, {digits[2]})"
    size = _FIXED.fullmatch(text)
    if size and int(size[1]):
        return f"fixed[{size[1]}]"
    raise InvalidValue("{} has a type that Iceberg does not have", _TODO)


def _parse_nested(kind: str, inner: list[str]) -> NestedType:
    if kind == "list" and len(inner) == 1:
        return NestedType("list", (("element", _parse_type(inner[0])),))
    if kind == "map" and len(inner) == _PAIR:
        return NestedType("map", (("key", _parse_type(inner[0])), ("value", _parse_type(inner[1]))))
    fields = [_FIELD.fullmatch(one) for one in inner]
    if kind != "struct" or not fields or not all(fields):
        raise InvalidValue(f"{{}} has a {kind} that cannot be read", _TODO)
    parts = tuple((field[1], _parse_type(field[2].strip())) for field in fields if field)
    if len({name for name, _ in parts}) < len(parts):
        raise InvalidValue("{} names a field of a struct twice", _TODO)
    return NestedType("struct", parts)


COLUMNS: Option[tuple[DeclaredColumn, ...]] = Option(
    name="schema.columns",
    kind=ValueType("list", _parse_columns),
    default=(),
    importance="low",
    doc="Columns to create the table with, e.g. id long required, name string. Only for a sink with a single table.",
)
LOCATION: Option[str | None] = Option(
    name="table.location",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Location to create the table at; not set: the catalog decides. Only for a sink with a single table.",
)
OPTIONS: tuple[Option[object], ...] = (COLUMNS, LOCATION)


def check(reader: ConfigReader, routes: RouteSettings | None, *, one_by_topic: bool) -> None:
    """Refuse a declared table where there may be several; `one_by_topic`: all topics go to one."""
    one = one_by_topic if routes is None else len(routes.tables) == 1
    for option in OPTIONS:
        entry = reader.entry(option)
        if entry and not one:
            what = "is for one table, and this sink may have several"
            reader.add_fault(entry, what, "name one topic in topics, or one table in iceberg.tables")
