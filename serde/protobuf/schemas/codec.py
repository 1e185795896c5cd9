"""definitions -> tree: how the fields of a message lie on the wire, and which Arrow type they are read into.

Source: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
from attrs import define, frozen

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5
"""Wire types; those of groups are not read."""

_VARINTS = {
    "int32": pa.int32(),
    "sint32": pa.int32(),
    "uint32": pa.int64(),
    "int64": pa.int64(),
    "sint64": pa.int64(),
    "uint64": pa.int64(),
    "bool": pa.bool_(),
}
_FIXED64 = {"fixed64": pa.int64(), "sfixed64": pa.int64(), "double": pa.float64()}
_FIXED32 = {"fixed32": pa.int64(), "sfixed32": pa.int32(), "float": pa.float32()}
_SIZED = {"string": pa.string(), "bytes": pa.binary()}
SCALARS: Mapping[str, tuple[int, pa.DataType]] = {
    name: (number, kind)
    for number, kinds in ((VARINT, _VARINTS), (FIXED64, _FIXED64), (FIXED32, _FIXED32), (SIZED, _SIZED))
    for name, kind in kinds.items()
}
"""Name -> wire type, Arrow type. Unsigned numbers are longs, as Connect has them; greater ones are faults."""


@frozen(eq=False)
class Scalar:
    """A number, text or bytes."""

    kind: str

    @property
    def wire_type(self) -> int:
        """How one value lies on the wire."""
        return SCALARS[self.kind][0]

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return SCALARS[self.kind][1]


@frozen(eq=False)
class LabelNumber:
    """A number, read into its label; into its digits where it has none."""

    labels: Mapping[int, str]
    wire_type: int = VARINT
    wire: pa.DataType = pa.string()


@frozen(eq=False)
class Wrapped:
    """A message that is one value, which may be null."""

    codec: Scalar
    wire_type: int = SIZED

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return self.codec.wire


@frozen(eq=False)
class MessageMember:
    """A field of a message; presence: absent is null, else the type's zero. `wanted` False: passed over."""

    name: str
    number: int
    codec: Codec
    repeated: bool = False
    presence: bool = False
    wanted: bool = True

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the column."""
        return (
            pa.list_(self.codec.wire) if self.repeated and not isinstance(self.codec, MapEntries) else self.codec.wire
        )

    @property
    def wire_types(self) -> frozenset[int]:
        """How it may lie on the wire: repeated numbers one by one or packed."""
        own = self.codec.wire_type
        return frozenset({own, SIZED}) if self.repeated else frozenset({own})


@frozen(eq=False)
class Oneof:
    """Fields of which one is there at most: a struct of them, null where none is."""

    name: str
    members: tuple[MessageMember, ...]

    @property
    def wire(self) -> pa.StructType:
        """Arrow type of the column."""
        return pa.struct([pa.field(member.name, member.wire) for member in self.members])

    @property
    def wanted(self) -> bool:
        """True where any member is."""
        return any(member.wanted for member in self.members)


@define(eq=False, slots=False)
class MessageType:
    """Fields in the order of the columns."""

    members: tuple[MessageMember | Oneof, ...]
    wire_type: int = SIZED

    @cached_property
    def wire(self) -> pa.StructType:
        """Arrow type of the column."""
        return pa.struct([pa.field(member.name, member.wire) for member in self.members if member.wanted])

    @cached_property
    def by_number(self) -> Mapping[int, MessageMember]:
        """All fields."""
        return {member.number: member for member in self._flat()}

    def _flat(self) -> Iterator[MessageMember]:
        for member in self.members:
            yield from member.members if isinstance(member, Oneof) else (member,)


@define(eq=False, slots=False)
class MapEntries:
    """Pairs: a repeated message of a key and a value."""

    pair: MessageType
    wire_type: int = SIZED

    @cached_property
    def wire(self) -> pa.MapType:
        """Arrow type of the column."""
        return pa.map_(self.pair.wire.field(0).type, self.pair.wire.field(1).type)


Codec: TypeAlias = Scalar | LabelNumber | Wrapped | MessageType | MapEntries
