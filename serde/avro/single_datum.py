"""one datum -> one wire row: the slow twin of the columnar reader, for few datums with many items."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attrs import define

from serde.avro.codec import (
    Array,
    Boolean,
    Codec,
    Enum,
    Fixed,
    Float,
    Integer,
    LengthPrefixed,
    MapBlocks,
    Null,
    Optional,
    Record,
    Scalar,
    Union,
)
from serde.faults import Unfit
from serde.pieces import ENDS_EARLY, INVALID_UTF8, TRAILING_BYTES, VALUE_OUTSIDE_SCHEMA

_MAX_VARINT_BYTES = 10
_LONG_BITS = 64


def read_datum(codec: Codec, data: bytes) -> object:
    """One datum as the wire value of its codec; raises Unfit with the reason."""
    reader = _DatumReader(data)
    value = reader.value(codec)
    if reader.at != len(data):
        raise Unfit(TRAILING_BYTES)
    return value


@define(eq=False)
class _DatumReader:
    data: bytes
    at: int = 0

    def value(self, codec: Codec) -> object:
        match codec:
            case Record():
                return self._record(codec)
            case Optional():
                return None if self._index(codec.count) == codec.null else self.value(codec.codec)
            case Union():
                return self._union(codec)
            case Array():
                return [self.value(codec.item) for _ in self._blocks()]
            case MapBlocks():
                return [(self._key(codec), self.value(codec.value)) for _ in self._blocks()]
            case _:
                return self._scalar(codec)

    def _scalar(self, codec: Scalar) -> object:  # noqa: PLR0911 - one case per type
        match codec:
            case Null():
                return None
            case Boolean():
                return self._flag()
            case Integer():
                return self._integer(codec.bits)
            case Float():
                return struct.unpack("<f" if codec.size == 4 else "<d", self._bytes(codec.size))[0]  # noqa: PLR2004
            case LengthPrefixed():
                return self._text() if codec.text else self._bytes(self._varint())
            case Fixed():
                return self._bytes(codec.size)
            case Enum():
                return codec.symbols[self._index(len(codec.symbols))]

    def _record(self, codec: Record) -> object:
        out = {}
        for member in codec.members:
            if member.wanted:
                out[member.name] = self.value(member.codec)
            else:
                self._skip(member.codec)
        return out

    def _skip(self, codec: Codec) -> None:
        """Go behind a value that nobody wants; it is looked at no closer than `column_reader.skip_column` does."""
        match codec:
            case Record():
                for member in codec.members:
                    self._skip(member.codec)
            case Optional() if not isinstance(codec.codec, Union | Array | MapBlocks):
                if self._index(codec.count) != codec.null:
                    self._skip(codec.codec)
            case Boolean():
                self._bytes(1)
            case Integer() | Enum():
                self._varint()
            case LengthPrefixed():
                self._bytes(self._varint())
            case _:
                self.value(codec)

    def _union(self, codec: Union) -> object:
        chosen = self._index(len(codec.branches) + (codec.null >= 0))
        if chosen == codec.null:
            return None
        branch = codec.branches[chosen - (0 <= codec.null < chosen)]
        return {branch.name: self.value(branch.codec)}

    def _key(self, codec: MapBlocks) -> object:
        key = self.value(codec.key)
        if key is None:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        return key

    def _blocks(self) -> Iterator[int]:
        while count := self._varint():
            if count < 0:
                self._varint()
            if abs(count) > len(self.data) - self.at:
                raise Unfit(ENDS_EARLY)
            yield from range(abs(count))

    def _index(self, count: int) -> int:
        index = self._varint()
        if not 0 <= index < count:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        return index

    def _flag(self) -> bool:
        byte = self._bytes(1)[0]
        if byte > 1:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        return byte == 1

    def _integer(self, bits: int) -> int:
        value = self._varint()
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        return value

    def _varint(self) -> int:
        raw = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self._bytes(1)[0]
            raw |= (byte & 127) << 7 * index
            if byte < 128:  # noqa: PLR2004
                break
        else:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        if raw >> _LONG_BITS:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        return raw >> 1 ^ -(raw & 1)

    def _text(self) -> str:
        data = self._bytes(self._varint())
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Unfit(INVALID_UTF8) from error

    def _bytes(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.at:
            raise Unfit(ENDS_EARLY)
        self.at += size
        return self.data[self.at - size : self.at]
