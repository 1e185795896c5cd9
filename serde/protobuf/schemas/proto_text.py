""".proto text -> definitions; the grammar is proto-schema-parser's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NoReturn

from antlr4.error.ErrorListener import ErrorListener
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from serde.protobuf.schemas.definitions import (
    PROTO2,
    PROTO3,
    Definitions,
    EnumDefinition,
    FieldDefinition,
    Malformed,
    MessageDefinition,
)

_META = "(confluent.field_meta)"
_PRESENCE = "features.field_presence"


class _Strict(ErrorListener):
    """Without it the parser repairs what it does not understand, and prints it."""

    def syntaxError(self, *args: Any) -> NoReturn:  # noqa: N802 - ANTLR's name
        raise Malformed(f"line {args[2]} is no Protobuf")


def _set_strict(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Strict())


@lru_cache(maxsize=256)
def _parse(text: str) -> ast.File:
    return Parser(setup_lexer=_set_strict, setup_parser=_set_strict).parse(text)


def add_text(text: str, into: Definitions) -> None:
    """Add what a text defines. Cost: some milliseconds per field, once per text and process. Raises Malformed."""
    try:
        file = _parse(text)
    except (AttributeError, TypeError, RecursionError, IndexError) as error:
        raise Malformed("it is no Protobuf") from error
    package = next((one.name for one in file.file_elements if isinstance(one, ast.Package)), "")
    builder = _Builder(into, file.syntax or (PROTO3 if file.edition else PROTO2), edition=bool(file.edition))
    if file.edition:
        builder.implicit = _read_presence(file.file_elements, default="EXPLICIT") == "IMPLICIT"
    into.roots = tuple(builder.add_all(file.file_elements, package))
    if not into.roots and not any(isinstance(one, ast.Enum | ast.Import) for one in file.file_elements):
        raise Malformed("it defines no message")


class _Builder:
    """One file on its way."""

    def __init__(self, into: Definitions, syntax: str, *, edition: bool) -> None:
        self._into = into
        self.implicit = syntax == PROTO3 and not edition
        """Whether fields without a label have no presence."""

    def add_all(self, elements: list[Any], scope: str) -> Iterator[str]:
        """Add messages and enums; return the names of the messages."""
        for one in elements:
            if isinstance(one, ast.Message):
                yield self._add_message(one.name, one.elements, scope)
            elif isinstance(one, ast.Enum):
                self._add_enum(one, _join(scope, one.name))

    def _add_message(self, name: str, elements: list[Any], scope: str) -> str:
        full = _join(scope, name)
        nested = tuple(self.add_all(elements, full))
        fields = tuple(self._fields(elements, full))
        self._into.messages[full] = MessageDefinition(full, fields, nested, is_map=False)
        return full

    def _fields(self, elements: list[Any], scope: str) -> Iterator[FieldDefinition]:
        for one in elements:
            match one:
                case ast.Field():
                    yield self._field(one, None)
                case ast.MapField():
                    yield self._map(one, scope)
                case ast.OneOf():
                    yield from (self._field(each, one.name) for each in one.elements if isinstance(each, ast.Field))
                    _refuse_groups(one.elements)
        _refuse_groups(elements)

    def _field(self, one: ast.Field, oneof: str | None) -> FieldDefinition:
        label = None if one.cardinality is None else one.cardinality.value
        presence = bool(oneof) or label in ("OPTIONAL", "REQUIRED")
        if label is None and not oneof:
            presence = _read_presence(one.options, "IMPLICIT" if self.implicit else "EXPLICIT") != "IMPLICIT"
        return FieldDefinition(
            one.name, one.number, one.type, label == "REPEATED", presence, oneof, dict(_read_params(one.options))
        )

    def _map(self, one: ast.MapField, scope: str) -> FieldDefinition:
        entry = f"{scope}.{_name_entry(one.name)}"
        pair = (
            FieldDefinition("key", 1, one.key_type, repeated=False, presence=False),
            FieldDefinition("value", 2, one.value_type, repeated=False, presence=False),
        )
        self._into.messages[entry] = MessageDefinition(entry, pair, is_map=True)
        return FieldDefinition(one.name, one.number, f".{entry}", repeated=True, presence=False)

    def _add_enum(self, one: ast.Enum, full: str) -> None:
        labels: dict[int, str] = {}
        for value in one.elements:
            if isinstance(value, ast.EnumValue):
                labels.setdefault(value.number, value.name)
        self._into.enums[full] = EnumDefinition(full, labels)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _refuse_groups(elements: list[Any]) -> None:
    if any(isinstance(one, ast.Group) for one in elements):
        raise Malformed("it has a group, which is not supported")


def _name_entry(field: str) -> str:
    """The message that protoc makes of a map field: `price_list` has a PriceListEntry."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _read_presence(options: list[Any], default: str) -> str:
    for one in options:
        if isinstance(one, ast.Option) and one.name == _PRESENCE and isinstance(one.value, ast.Identifier):
            return one.value.name
    return default


def _read_params(options: list[ast.Option]) -> Iterator[tuple[str, str]]:
    """Pairs of what Confluent's converter noted of a field."""
    for option in options:
        if option.name == f"{_META}.params":
            yield from _read_pairs(option.value)
        if option.name == _META and isinstance(option.value, ast.MessageLiteral):
            for name, value in _literal_fields(option.value):
                if name == "params":
                    yield from _read_pairs(value)


def _read_pairs(value: Any) -> Iterator[tuple[str, str]]:
    for pair in value if isinstance(value, list) else [value]:
        if isinstance(pair, ast.MessageLiteral):
            fields = dict(_literal_fields(pair))
            yield str(fields.get("key", "")), str(fields.get("value", ""))


def _literal_fields(literal: ast.MessageLiteral) -> Iterator[tuple[str, Any]]:
    return ((one.name, one.value) for one in literal.elements if isinstance(one, ast.MessageLiteralField))
