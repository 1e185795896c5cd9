"""one message -> one wire row: the slow twin of the columnar reader, for fields that come again and very many items."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from serde.faults import Unfit
from serde.pieces import ENDS_EARLY, INVALID_UTF8, VALUE_OUTSIDE_SCHEMA
from serde.protobuf.schemas.codec import (
    FIXED32,
    FIXED64,
    SIZED,
    VARINT,
    Codec,
    LabelNumber,
    MapEntries,
    MessageMember,
    MessageType,
    Oneof,
    Wrapped,
)

_MAX_VARINT_BYTES = 10
_FORMATS = {"fixed32": "<I", "sfixed32": "<i", "float": "<f", "fixed64": "<Q", "sfixed64": "<q", "double": "<d"}


def read_message(codec: MessageType, data: bytes) -> dict[str, Any]:
    """One message as the wire value of its codec; raises Unfit with the reason."""
    found: dict[int, list[Any]] = {}
    last: dict[int, int] = {}
    for order, (number, kind, raw) in enumerate(_fields(data)):
        known = codec.by_number.get(number)
        if known is None or not known.wanted:
            continue
        if kind not in known.wire_types:
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        into = found.setdefault(number, [])
        last[number] = order
        if known.repeated and kind == SIZED and known.codec.wire_type != SIZED:
            into.extend(_unpack(known.codec.wire_type, raw))
        else:
            into.append(raw)
    values: dict[str, Any] = {}
    for member in codec.members:
        if isinstance(member, Oneof):
            values[member.name] = _read_oneof(member, found, last)
        elif member.wanted:
            values[member.name] = _read_member(member, found.get(member.number, []))
    return values


def _read_oneof(oneof: Oneof, values: dict[int, list[Any]], last: dict[int, int]) -> dict[str, Any] | None:
    set_members = [member for member in oneof.members if member.number in values]
    if not set_members:
        return None
    chosen = max(set_members, key=lambda member: last[member.number])
    return {
        member.name: _read_member(member, values[member.number]) if member is chosen else None
        for member in oneof.members
    }


def _read_member(member: MessageMember, raw: list[Any]) -> Any:
    codec = member.codec
    if isinstance(codec, MapEntries):
        pairs = [read_message(codec.pair, one) for one in raw]
        return [(pair["key"], pair["value"]) for pair in pairs]
    if member.repeated:
        return [_read_value(codec, one) for one in raw]
    if raw:
        whole = b"".join(raw) if isinstance(codec, MessageType | Wrapped) else raw[-1]
        return _read_value(codec, whole)
    if member.presence:
        return None
    return (
        codec.labels.get(0, "0")
        if isinstance(codec, LabelNumber)
        else _read_value(codec, b"" if codec.wire_type == SIZED else 0)
    )


def _read_value(codec: Codec, raw: Any) -> Any:  # noqa: PLR0911 - one case per type
    match codec:
        case MessageType():
            return read_message(codec, raw)
        case Wrapped():
            return read_message(MessageType((MessageMember("value", 1, codec.codec),)), raw)["value"]
        case LabelNumber():
            number = _to_signed(raw, 32)
            return codec.labels.get(number, str(number))
        case MapEntries():
            raise TypeError("a map is repeated")
    match codec.kind:
        case "string":
            try:
                return raw.decode()
            except UnicodeDecodeError:
                raise Unfit(INVALID_UTF8) from None
        case "bytes":
            return raw
        case "bool":
            return raw != 0
        case "int32" | "int64":
            return _to_signed(raw, int(codec.kind[3:]))
        case "sint32" | "sint64":
            bits = raw & (1 << int(codec.kind[4:])) - 1
            return bits >> 1 ^ -(bits & 1)
        case "uint32":
            return raw & 0xFFFFFFFF
        case "uint64":
            return _check_long(raw)
    size = 8 if codec.wire_type == FIXED64 else 4
    (number,) = struct.unpack(_FORMATS[codec.kind], raw.to_bytes(size, "little"))
    return _check_long(number) if codec.kind == "fixed64" else number


def _to_signed(raw: int, bits: int) -> int:
    low = raw & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def _check_long(number: int) -> int:
    if number >> 63:
        raise Unfit(VALUE_OUTSIDE_SCHEMA)
    return number


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if not tag >> 3 or tag >> 32 or kind not in (VARINT, FIXED64, SIZED, FIXED32):
            raise Unfit(VALUE_OUTSIDE_SCHEMA)
        if kind == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, kind, value
            continue
        size = 8 if kind == FIXED64 else 4
        if kind == SIZED:
            size, at = _varint(data, at)
        if at + size > len(data):
            raise Unfit(ENDS_EARLY)
        raw = data[at : at + size]
        yield tag >> 3, kind, raw if kind == SIZED else int.from_bytes(raw, "little")
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(data):
            raise Unfit(ENDS_EARLY)
        byte = data[at + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:  # noqa: PLR2004
            if value >> 64:
                break
            return value, at + index + 1
    raise Unfit(VALUE_OUTSIDE_SCHEMA)


def _unpack(wire_type: int, raw: bytes) -> Iterator[int]:
    at = 0
    if wire_type == VARINT:
        while at < len(raw):
            value, at = _varint(raw, at)
            yield value
        return
    size = 8 if wire_type == FIXED64 else 4
    if len(raw) % size:
        raise Unfit(ENDS_EARLY)
    for at in range(0, len(raw), size):
        yield int.from_bytes(raw[at : at + size], "little")
