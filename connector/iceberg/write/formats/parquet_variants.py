"""A Parquet file's footer -> the same, with groups marked as variants: Arrow writes their columns, not what they mean.

Sources: Parquet's `parquet.thrift` (FileMetaData field 2, SchemaElement fields 4, 5 and 10, LogicalType field 16) and
Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple, Protocol

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12
_BYTE, _BOOLEANS = 3, (1, 2)
_DOUBLE = 7
_SCHEMA_FIELD, _NAME_FIELD, _CHILDREN_FIELD, _FIELD_ID_FIELD = 2, 4, 5, 9
_VARIANT_ANNOTATION = bytes([0x1C, 0x0C, 0x20, 0x13, 0x01, 0x00, 0x00])
"""Field 10, one after `field_id`: the union's member 16, a struct whose field 1 is version 1; both are closed."""


class ByteSink(Protocol):
    """Where a file's bytes go."""

    def write(self, b: bytes) -> int:
        """Write all of them."""


class VariantAnnotator:
    """A stream between a Parquet writer and its sink; what comes after `hold` is the footer, mended by `release`."""

    closed = False

    def __init__(self, sink: ByteSink, groups: Collection[str]) -> None:
        """Mark the top-level groups of these names."""
        self._sink, self._groups = sink, groups
        self._held: list[bytes] | None = None
        self._written = 0

    def write(self, data: bytes) -> int:
        """Hand on, or hold."""
        piece = bytes(data)
        self._written += len(piece)
        if self._held is None:
            self._sink.write(piece)
        else:
            self._held.append(piece)
        return len(piece)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._written

    def flush(self) -> None:
        """Do nothing: the sink is flushed when it is closed."""

    def hold_footer(self) -> None:
        """The footer comes next."""
        self._held = []

    def release(self) -> int:
        """Write the mended footer; gives the file's size in bytes."""
        end = b"".join(self._held or ())
        footer = annotate_footer(end, self._groups)
        self._sink.write(footer)
        return self._written - len(end) + len(footer)


def annotate_footer(end: bytes, groups: Collection[str]) -> bytes:
    """Return the end of a file, which holds the whole footer, with these groups marked."""
    (size,) = struct.unpack_from("<I", end, len(end) - _TAIL_BYTES)
    start = len(end) - _TAIL_BYTES - size
    footer = bytearray(end[start : start + size])
    for at in reversed(_find_group_ends(footer, groups)):
        footer[at:at] = _VARIANT_ANNOTATION
    return end[:start] + bytes(footer) + struct.pack("<I", len(footer)) + _MAGIC


def _find_group_ends(footer: bytearray, groups: Collection[str]) -> list[int]:
    """Find where the elements of these top-level groups end, before their stop byte.

    What lies within another column may have the same name, as the value of a map has.
    """
    at, field = 0, 0
    while field != _SCHEMA_FIELD:
        field, kind, at = _read_field_header(footer, at, field)
        if field != _SCHEMA_FIELD:
            at = _skip_value(footer, at, kind)
    count, at = footer[at] >> 4, at + 1
    if count == 0xF:  # noqa: PLR2004 - a longer list tells its size behind
        count, at = _read_varint(footer, at)
    places: list[int] = []
    open_groups: list[int] = []
    for _ in range(count):
        element = _read_element(footer, at)
        if len(open_groups) == 1 and element.name in groups and element.last == _FIELD_ID_FIELD:
            places.append(element.end - 1)
        at = element.end
        # Elements come depth first: each tells how many are within it.
        open_groups.append(element.children)
        while open_groups and not open_groups[-1]:
            open_groups.pop()
            if open_groups:
                open_groups[-1] -= 1
    return places


class _Element(NamedTuple):
    """An element of the schema: where the next begins, its name, how many are within it, and its last field."""

    end: int
    name: str
    children: int
    last: int


def _read_element(footer: bytearray, at: int) -> _Element:
    name, children, field = "", 0, 0
    while footer[at]:
        field, kind, at = _read_field_header(footer, at, field)
        if field == _NAME_FIELD:
            size, start = _read_varint(footer, at)
            name = footer[start : start + size].decode()
        if field == _CHILDREN_FIELD:
            children = _read_varint(footer, at)[0] >> 1  # zigzag, and never negative
        at = _skip_value(footer, at, kind)
    return _Element(at + 1, name, children, field)


def _read_field_header(data: bytearray, at: int, before: int) -> tuple[int, int, int]:
    """Read a field's header: its id, its type, and where its value begins."""
    byte = data[at]
    if byte >> 4:
        return before + (byte >> 4), byte & 0xF, at + 1
    number, at = _read_varint(data, at + 1)
    return (number >> 1) ^ -(number & 1), byte & 0xF, at


def _skip_value(data: bytearray, at: int, kind: int) -> int:
    """Return where a value ends."""
    if kind in _BOOLEANS:
        return at
    if kind == _BYTE:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        size, at = _read_varint(data, at)
        return at + size
    if kind == _STRUCT:
        field = 0
        while data[at]:
            field, inner, at = _read_field_header(data, at, field)
            at = _skip_value(data, at, inner)
        return at + 1
    if kind in (_LIST, _SET, _MAP):
        raise ValueError("a list where Parquet's schema has none")
    return _read_varint(data, at)[1]


def _read_varint(data: bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
