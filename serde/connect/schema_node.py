"""schema -> tree: how each field lies on the wire (what the JSON reader gives) and what it becomes.

Leaf     one value: wire type, logical type, the vectorised step between, and the same step for one Python value
Struct   named fields         List     items         Map     pairs (no columnar reader: rows go one by one)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
from attrs import define, frozen

from serde.arrays import Mask

ELEMENT, KEY, VALUE = "element", "key", "value"
"""What the items of a list, and the sides of a map's pairs, are called in paths."""

MAX_DEPTH = 50
"""How deep values nest that become columns: what reads a table's schema goes down a dozen calls for each level of it,
and a batch of Arrow's holds some sixty. A column that cannot be read is worse than a dead letter."""

Convert = Callable[[pa.Array], tuple[pa.Array, Mask | None]]
"""Wire array -> logical array of the same length, and a mask of the values that cannot be represented (None:
all can).
"""
Read = Callable[[object], object]
"""One JSON value (never None) -> wire value; raises Unfit."""


def chain(first: Convert | None, second: Convert | None) -> Convert | None:
    """Both steps, one after the other; what is bad in either is bad."""
    if first is None or second is None:
        return first or second

    def both(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        between, one = first(array)
        converted, other = second(between)
        if one is None or other is None:
            return converted, other if one is None else one
        return converted, one | other

    return both


@frozen(eq=False)
class Leaf:
    """One value; `label` is the schema type that a fault names."""

    wire: pa.DataType
    logical: pa.DataType
    label: str
    read: Read
    convert: Convert | None = None
    exact: bool = False
    """Numbers of this leaf must reach `read` as Decimal, not as float."""
    text: Convert | None = None
    """The step to text with every digit, of decimals: instead of `convert`."""
    words: Convert | None = None
    """The step to ISO text, of dates and times that are not read as the number of their type."""
    parts: Convert | None = None
    """The step to the struct that it is in Connect, of structs that stand for one value: instead of `convert`."""
    unknown: str | None = None
    """What the schema says it is, with its Connect type, where only that is known."""


@frozen(eq=False)
class Field:
    """A named child of a struct."""

    name: str
    node: Node
    optional: bool


@frozen(eq=False)
class StructValue:
    """What a whole struct stands for: a value of this type, made of the converted fields."""

    logical: pa.DataType
    convert: Convert


@define(eq=False, slots=False)
class Struct:
    """Fields by name; `name` is the Connect schema name, `value` what it stands for if that is one value."""

    fields: tuple[Field, ...]
    name: str | None = None
    value: StructValue | None = None

    @cached_property
    def wire(self) -> pa.StructType:
        """Type that the reader parses into."""
        return pa.struct([pa.field(field.name, field.node.wire) for field in self.fields])

    @cached_property
    def logical(self) -> pa.DataType:
        """Type after conversion."""
        if self.value is not None:
            return self.value.logical
        return pa.struct([pa.field(field.name, field.node.logical) for field in self.fields])

    @cached_property
    def plain(self) -> bool:
        """True when nothing below needs a conversion."""
        return self.value is None and all(is_plain(field.node) for field in self.fields)


@frozen(eq=False)
class List:
    """Items of one type; `optional`: an item may be null."""

    item: Node
    optional: bool = False

    @property
    def wire(self) -> pa.ListType:
        """Type that the reader parses into."""
        return pa.list_(self.item.wire)

    @property
    def logical(self) -> pa.ListType:
        """Type after conversion."""
        return pa.list_(self.item.logical)


@frozen(eq=False)
class Map:
    """Pairs: a JSON object for string keys, else an array of [key, value]; `optional`: a value may be null."""

    key: Node
    value: Node
    text_key: bool
    optional: bool = False

    @property
    def wire(self) -> pa.MapType:
        """Type that rows are read into."""
        return pa.map_(self.key.wire, self.value.wire)

    @property
    def logical(self) -> pa.MapType:
        """Type after conversion."""
        return pa.map_(self.key.logical, self.value.logical)


Node: TypeAlias = Leaf | Struct | List | Map


def is_plain(node: Node) -> bool:
    """True when wire and logical values are the same everywhere below."""
    match node:
        case Leaf():
            return node.convert is None
        case Struct():
            return node.plain
        case List():
            return is_plain(node.item)
        case Map():
            return is_plain(node.key) and is_plain(node.value)


def is_columnar(node: Node) -> bool:
    """True when the columnar JSON reader can read this: maps and structs without fields it cannot."""
    match node:
        case Leaf():
            return True
        case Struct():
            return bool(node.fields) and all(is_columnar(field.node) for field in node.fields)
        case List():
            return is_columnar(node.item)
        case Map():
            return False


def needs_exact(node: Node) -> bool:
    """True when numbers below may have to be read as Decimal."""
    match node:
        case Leaf():
            return node.exact
        case Struct():
            return any(needs_exact(field.node) for field in node.fields)
        case List():
            return needs_exact(node.item)
        case Map():
            return needs_exact(node.key) or needs_exact(node.value)
