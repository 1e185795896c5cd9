"""schema -> the same with some columns as text: what Iceberg has no type for, told by the schema and never by a value.

A column is text from its first event on, or never:
- by option: columns, or types by their schema name, that are to be text;
- by its source: MySQL's, MariaDB's, Vitess's and TiDB's TIME is a span of time from -838:59:59 to 838:59:59, and no
  time of day; SQL Server's times have seven digits behind the point, Oracle's and Db2's nine where their type says more
  than six, and Iceberg's have six (nanoseconds only as timestamps of format version 3). Envelopes name the connector in
  the schema of `source`; flattened events do in a header, which the reader looks at.

Decimals of more than 38 digits are text by the table of types itself (`connect.type_table`). Or a column stays what the
message has, where the table that it goes to holds that: dates and times numbers, what is one value a struct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
from attrs import evolve

from serde.arrays import Mask
from serde.connect.connect_schema import ConnectSchema, find_number_texts, is_envelope_node
from serde.connect.schema_node import Convert, Field, Leaf, List, Map, Node, Struct, StructValue
from serde.connect.type_table import CONNECT_PREFIX, STRUCT_TYPES, TEXT, TIME_PREFIX
from serde.connect.values.iso_text import TEXT_CONVERSIONS
from serde.connect.values.structured_times import STRUCTURED_TYPES
from serde.events.kinds.sourceless import ENVELOPE_FIELDS

TEMPORAL_OPTION = "debezium.sink.iceberg.temporal-as-text"
DECIMAL_OPTION = "debezium.sink.iceberg.decimal-as-text"
"""What makes columns text that would be dates and times, or decimals."""

ALL_COLUMNS = "*"
"""Stands for all columns."""

WITH_NANOSECONDS = "timestamp_ns"
"""Stands, among columns, for tables that have timestamps of nanoseconds: those need not be text."""

_PLAIN = "\0"
"""Begins the word for a column that stays as messages have it; no column's name has it."""

DURATION_TYPES = frozenset(
    {TIME_PREFIX + "MicroTime", TIME_PREFIX + "NanoTime", TIME_PREFIX + "Time", CONNECT_PREFIX + "Time"}
)
"""Types of MySQL's, MariaDB's and Vitess's TIME in the modes of `time.precision.mode`."""

_NANOSECONDS = frozenset({TIME_PREFIX + "NanoTimestamp"})
_SEVEN_DIGITS = _NANOSECONDS | {
    TIME_PREFIX + name
    for name in (
        "NanoTime",
        "IsoTime",
        "IsoTimestamp",
        "ZonedTimestamp",
        "StructuredTime",
        "StructuredTimestamp",
        "StructuredZonedTimestamp",
    )
}
"""Types of SQL Server's time, datetime2 and datetimeoffset, which have seven digits unless they say less."""

_TYPES_OF_CONNECTORS: Mapping[str, frozenset[str]] = {
    "mysql": DURATION_TYPES,
    "mariadb": DURATION_TYPES,
    "vitess": DURATION_TYPES,
    "tidb": DURATION_TYPES,
    "sqlserver": _SEVEN_DIGITS,
    "oracle": _NANOSECONDS,
    "db2": _NANOSECONDS | {TIME_PREFIX + "NanoTime"},
}
"""Connectors, as a header and `source.connector` name them, and their types that Iceberg has none for."""
_SOURCE_NAME = re.compile(r"io\.debezium\.connector\.(\w+)\.Source")
_DATA_NAME = re.compile(r"io\.debezium\.connector\.(\w+)\.Data")
"""CloudEvents' data: images, whose source is not beside them."""
_IMAGES = frozenset({"before", "after"})
_DATA = ENVELOPE_FIELDS | {"patch"}


def find_text_types(connector: str | None, columns: frozenset[str]) -> frozenset[str]:
    """The types of a connector, by their schema names, that are text; `columns` as in `with_text_columns`."""
    types = _TYPES_OF_CONNECTORS.get(connector or "", frozenset())
    return types - _NANOSECONDS if WITH_NANOSECONDS in columns else types


def name_plain_column(path: str, *, any_case: bool = False) -> str:
    """The word for a column, among those of `with_text_columns`, that stays what the message has.

    Of fields of structs, dotted, each has a word of its own; `any_case`: whatever the case of a column's own name.
    """
    name, dot, rest = path.partition(".")
    return f"{_PLAIN}{_PLAIN}{name.lower()}{dot}{rest}" if any_case else _PLAIN + path


def _is_plain_column(path: str, columns: frozenset[str]) -> bool:
    return name_plain_column(path) in columns or name_plain_column(path, any_case=True) in columns


def _to_plain_node(node: Node, path: str, columns: frozenset[str]) -> Node:
    """The tree with dates and times as their numbers, and with structs that stand for one value as structs."""
    match node:
        case Leaf() if node.parts is not None:
            return Leaf(node.wire, STRUCT_TYPES[node.label].plain, node.label, node.read, node.parts)
        case Leaf():
            is_number = pa.types.is_temporal(node.logical) and pa.types.is_integer(node.wire)
            return Leaf(node.wire, node.wire, node.label, node.read) if is_number else node
        case Struct():
            if node.value is not None:
                return Struct(node.fields, node.name)
            return Struct(tuple(_to_plain_field(field, path, columns) for field in node.fields), node.name)
        case List():
            return evolve(node, item=_to_plain_node(node.item, path, columns))
        case Map():
            return evolve(node, value=_to_plain_node(node.value, path, columns))


def _to_plain_field(field: Field, above: str, columns: frozenset[str]) -> Field:
    path = f"{above}.{field.name}"
    return evolve(field, node=_to_plain_node(field.node, path, columns)) if _is_plain_column(path, columns) else field


def to_text_node(node: Node, types: frozenset[str] = frozenset({ALL_COLUMNS})) -> Node:
    """The tree with dates and times as text: all of them, or those of these types."""
    match node:
        case Leaf():
            if node.label not in TEXT_CONVERSIONS or not types & {ALL_COLUMNS, node.label}:
                return node
            words = node.words or TEXT_CONVERSIONS[node.label]
            return Leaf(node.wire, TEXT, node.label, node.read, words, words=node.words)
        case Struct():
            if node.value is not None:
                return _as_text_value(node, types)
            fields = tuple(evolve(field, node=to_text_node(field.node, types)) for field in node.fields)
            return Struct(fields, node.name)
        case List():
            return evolve(node, item=to_text_node(node.item, types))
        case Map():
            return evolve(node, key=to_text_node(node.key, types), value=to_text_node(node.value, types))


def _as_text_value(node: Struct, types: frozenset[str]) -> Struct:
    structured = STRUCTURED_TYPES.get(node.name or "")
    if structured is None or not types & {ALL_COLUMNS, node.name}:
        return node
    return Struct(node.fields, node.name, StructValue(TEXT, structured.text))


def _to_number_text(node: Node) -> Node:
    """The tree with decimals as text."""
    match node:
        case Leaf():
            return node if node.text is None else evolve(node, logical=TEXT, convert=node.text)
        case Struct() if node.value is None:
            return Struct(tuple(evolve(field, node=_to_number_text(field.node)) for field in node.fields), node.name)
        case List():
            return evolve(node, item=_to_number_text(node.item))
        case Map():
            return evolve(node, key=_to_number_text(node.key), value=_to_number_text(node.value))
        case _:
            return node


def find_text_option(node: Leaf | Struct, wire: pa.Array) -> tuple[str | None, Mask]:
    """The option that makes columns of this type text, None where there is none, and which of the values it holds."""
    for option, as_text in ((TEMPORAL_OPTION, to_text_node(node)), (DECIMAL_OPTION, _to_number_text(node))):
        if as_text is not node:
            _, bad = _text_step(as_text)(wire)
            return option, np.ones(len(wire), np.bool_) if bad is None else ~bad
    return None, np.zeros(len(wire), np.bool_)


def _text_step(node: Node) -> Convert:
    value = node.value if isinstance(node, Struct) else node
    step = value.convert if isinstance(value, Leaf | StructValue) else None
    return step or (lambda wire: (wire, None))


@lru_cache(maxsize=1024)
def with_text_columns(
    schema: ConnectSchema, columns: frozenset[str], numbers: frozenset[str] = frozenset()
) -> ConnectSchema:
    """The schema with columns of the row as text; images of an envelope too.

    columns: whose dates and times are text, by name, by the schema name of their type, or `ALL_COLUMNS`, and perhaps
    `WITH_NANOSECONDS`; those of `name_plain_column` stay as they are; numbers: whose decimals are text.
    """
    fields = {field.name: field for field in schema.node.fields}
    envelope = is_envelope_node(schema.node) or _holds_images(fields)
    source_name = getattr(fields["source"].node, "name", None) if "source" in fields else None
    named = _SOURCE_NAME.fullmatch(source_name or "") or _DATA_NAME.fullmatch(schema.name or "")
    if envelope and named:
        columns |= find_text_types(named[1], columns)
    if not columns and not numbers:
        return schema
    members = [
        (_image_as_text(field, columns, numbers) if field.name in _IMAGES else field)
        if envelope
        else _column_as_text(field, columns, numbers)
        for field in schema.node.fields
    ]
    node = Struct(tuple(members), schema.node.name)
    return evolve(schema, node=node, numbers=find_number_texts(node) if numbers else schema.numbers)


def _holds_images(fields: Mapping[str, Field]) -> bool:
    """True for the data of CloudEvents, which has little beside the images, and for envelopes without source."""
    images = [fields[name].node for name in _IMAGES if name in fields]
    return bool(images) and _DATA.issuperset(fields) and all(isinstance(node, Struct) for node in images)


def _image_as_text(field: Field, columns: frozenset[str], numbers: frozenset[str]) -> Field:
    if not isinstance(field.node, Struct):
        return field
    children = tuple(_column_as_text(child, columns, numbers) for child in field.node.fields)
    return evolve(field, node=Struct(children, field.node.name))


def _column_as_text(field: Field, columns: frozenset[str], numbers: frozenset[str]) -> Field:
    if _is_plain_column(field.name, columns):
        return evolve(field, node=_to_plain_node(field.node, field.name, columns))
    whole = columns & {ALL_COLUMNS, field.name}
    node = to_text_node(field.node) if whole else to_text_node(field.node, columns)
    if numbers & {ALL_COLUMNS, field.name}:
        node = _to_number_text(node)
    return evolve(field, node=node)
