"""writer schema -> tree: how the bytes of each field lie in a datum, and which Arrow type they are read into.

Source: the Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
from attrs import define, frozen


@frozen(eq=False)
class Null:
    """Nothing: no byte."""

    wire: pa.DataType = pa.null()


@frozen(eq=False)
class Boolean:
    """One byte, 0 or 1."""

    wire: pa.DataType = pa.bool_()


@frozen(eq=False)
class Integer:
    """A zigzag varint of 32 or 64 bits."""

    bits: int

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.int32() if self.bits == 32 else pa.int64()  # noqa: PLR2004


@frozen(eq=False)
class Float:
    """An IEEE number of 4 or 8 bytes, little-endian."""

    size: int

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.float32() if self.size == 4 else pa.float64()  # noqa: PLR2004


@frozen(eq=False)
class LengthPrefixed:
    """A length, then so many bytes: text (UTF-8) or bytes."""

    text: bool

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.string() if self.text else pa.binary()


@frozen(eq=False)
class Fixed:
    """Always `size` bytes."""

    size: int
    wire: pa.DataType = pa.binary()


@frozen(eq=False)
class Enum:
    """The index of a symbol; read into the symbol's text."""

    symbols: tuple[str, ...]
    wire: pa.DataType = pa.string()


@frozen(eq=False)
class RecordField:
    """A field of a record; `wanted` False: its bytes are passed over, the column does not exist."""

    name: str
    codec: Codec
    wanted: bool = True


@define(eq=False, slots=False)
class Record:
    """Fields one after the other."""

    members: tuple[RecordField, ...]

    @cached_property
    def wire(self) -> pa.StructType:
        """Arrow type of the column."""
        return pa.struct([pa.field(member.name, member.codec.wire) for member in self.members if member.wanted])


@define(eq=False, slots=False)
class Optional:
    """A union of null (branch `null`) and one other: two branches, or one branch alone (`null` is -1)."""

    codec: Codec
    null: int
    count: int

    @cached_property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return self.codec.wire


@define(eq=False, slots=False)
class Union:
    """A union of several types that are not null: a struct with one column per branch, as Connect has it."""

    branches: tuple[RecordField, ...]
    null: int
    """Position of the null branch among all, -1 without one."""

    @cached_property
    def wire(self) -> pa.StructType:
        """Arrow type of the column."""
        return pa.struct([pa.field(branch.name, branch.codec.wire) for branch in self.branches])


@define(eq=False, slots=False)
class Array:
    """Blocks of items."""

    item: Codec

    @cached_property
    def wire(self) -> pa.ListType:
        """Arrow type of the column."""
        return pa.list_(self.item.wire)


@define(eq=False, slots=False)
class MapBlocks:
    """Blocks of pairs: Avro's map, or Connect's array of records of a key and a value, which has the same bytes."""

    key: Codec
    value: Codec

    @cached_property
    def pair(self) -> Record:
        """A pair as a record."""
        return Record((RecordField("key", self.key), RecordField("value", self.value)))

    @cached_property
    def wire(self) -> pa.MapType:
        """Arrow type of the column."""
        return pa.map_(self.key.wire, self.value.wire)


Scalar: TypeAlias = Null | Boolean | Integer | Float | LengthPrefixed | Fixed | Enum
Codec: TypeAlias = Scalar | Record | Optional | Union | Array | MapBlocks


def min_bytes(codec: Codec) -> int:
    """The least number of bytes that a value takes."""
    match codec:
        case Null():
            return 0
        case Float():
            return codec.size
        case Fixed():
            return codec.size
        case Record():
            return sum(min_bytes(member.codec) for member in codec.members)
        case _:
            return 1
