"""messages of one schema -> wire columns: a pass over the schema makes a column of each field of all messages.

Cost: some forty steps of numpy per field and piece, whatever the number of messages. Fields that come twice where once
is meant, and few messages with very many items, are left to be read one by one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, count_list_offsets, valid_mask
from serde.cursor import NEEDS_ROW_READER, OUTSIDE_SCHEMA, Cursor, Words, unfold_zigzag
from serde.pieces import window_column
from serde.protobuf.packed import unpack_items
from serde.protobuf.schemas.codec import (
    SIZED,
    Codec,
    LabelNumber,
    MapEntries,
    MessageMember,
    MessageType,
    Oneof,
    Scalar,
    Wrapped,
)
from serde.protobuf.wire_scan import Occurrences, scan_messages

_INT64_BITS = np.uint64(1 << 63)


def read_messages(codec: MessageType, at: Cursor) -> pa.StructArray:
    """Read the message at each place of the cursor, to its end; bad ones give any value."""
    if not len(at):
        return pa.array([], codec.wire)
    kinds = {number: member.wire_types for number, member in codec.by_number.items() if member.wanted}
    occurrences = scan_messages(at, kinds)
    columns: list[pa.Array] = []
    for member in codec.members:
        if isinstance(member, Oneof):
            if member.wanted:
                columns.append(_read_oneof(member, at, occurrences))
        elif member.wanted:
            columns.append(_read_member(member, at, occurrences.get(member.number, {})))
    if not columns:
        return pa.array([{}] * len(at), codec.wire)
    return pa.StructArray.from_arrays(columns, fields=list(codec.wire))


def _read_oneof(oneof: Oneof, at: Cursor, occurrences: dict[int, dict[int, Occurrences]]) -> pa.StructArray:
    columns = [_read_member(member, at, occurrences.get(member.number, {})) for member in oneof.members]
    set_members = np.zeros(len(at), np.int64)
    for member in oneof.members:
        for one in occurrences.get(member.number, {}).values():
            set_members[one.owners] += 1
    if (set_members > 1).any():
        at.fail(set_members > 1, NEEDS_ROW_READER)
    mask = pa.array(set_members == 0) if (set_members == 0).any() else None
    return pa.StructArray.from_arrays(columns, fields=list(oneof.wire), mask=mask)


def _read_member(member: MessageMember, at: Cursor, occurrences: dict[int, Occurrences]) -> pa.Array:
    if member.repeated:
        return _read_repeated(member, at, occurrences)
    one = occurrences.get(member.codec.wire_type)
    if one is None:
        return _absent(member, len(at))
    one = _keep_last(member.codec, at, one)
    values = _read_values(member.codec, at, one)
    if len(values) == len(at):
        return values
    place = np.full(len(at), -1)
    place[one.owners] = np.arange(len(values))
    if member.presence:
        return values.take(pa.array(place, mask=place < 0))
    whole = pa.concat_arrays([values, _absent(member, 1)])
    return whole.take(pa.array(np.where(place < 0, len(values), place)))


def _absent(member: MessageMember, count: int) -> pa.Array:
    """What is not on the wire: null, or the type's zero."""
    if member.presence:
        return pa.nulls(count, member.codec.wire)
    codec = member.codec
    kind = codec.wire
    if isinstance(codec, LabelNumber):
        zero: object = codec.labels.get(0, "0")
    else:
        zero = (
            "" if pa.types.is_string(kind) else b"" if pa.types.is_binary(kind) else False if kind == pa.bool_() else 0
        )
    return pa.repeat(pa.scalar(zero, kind), count)


def _keep_last(codec: Codec, at: Cursor, one: Occurrences) -> Occurrences:
    """Of a value that comes several times the last counts; messages are merged, which is done one by one."""
    again = one.owners[1:] == one.owners[:-1]
    if not again.any():
        return one
    if isinstance(codec, MessageType | Wrapped):
        at.fail(one.owners[1:][again], NEEDS_ROW_READER)
    return _pick(one, np.append(~again, True))


def _pick(one: Occurrences, which: Mask) -> Occurrences:
    words = one.words[which] if len(one.words) else one.words
    sizes = one.sizes[which] if len(one.sizes) else one.sizes
    return Occurrences(one.owners[which], one.places[which], words, sizes)


def _read_values(codec: Codec, at: Cursor, one: Occurrences) -> pa.Array:
    match codec:
        case MessageType():
            return read_messages(codec, _inside(at, one))
        case Wrapped():
            inner = MessageType((MessageMember("value", 1, codec.codec),))
            return read_messages(inner, _inside(at, one)).field(0)
        case MapEntries():
            raise TypeError("a map is repeated")
        case Scalar() if codec.wire_type == SIZED:
            below = at.pick(one.owners)
            return window_column(below, one.places, one.sizes, text=codec.kind == "string")
        case _:
            below = at.pick(one.owners)
            return _read_numbers(codec, below, one.words)


def _inside(at: Cursor, one: Occurrences) -> Cursor:
    """A cursor over windows of messages."""
    return Cursor(at.piece, at.rows[one.owners], one.places.copy(), one.places + one.sizes)


def _read_numbers(codec: Scalar | LabelNumber, at: Cursor, words: Words) -> pa.Array:  # noqa: PLR0911 - one case per type
    if isinstance(codec, LabelNumber):
        return _read_labels(codec, words.astype(np.uint32).view(np.int32))
    match codec.kind:
        case "bool":
            return pa.array(words != 0)
        case "int32" | "sfixed32":
            return pa.array(words.astype(np.uint32).view(np.int32))
        case "sint32":
            return pa.array(unfold_zigzag(words & np.uint64(0xFFFFFFFF)).astype(np.int32))
        case "sint64":
            return pa.array(unfold_zigzag(words))
        case "uint32" | "fixed32":
            return pa.array((words & np.uint64(0xFFFFFFFF)).view(np.int64))
        case "float":
            return pa.array(words.astype(np.uint32).view(np.float32))
        case "double":
            return pa.array(words.view(np.float64))
        case "uint64" | "fixed64" if (words >= _INT64_BITS).any():
            at.fail(words >= _INT64_BITS, OUTSIDE_SCHEMA)
    return pa.array(words.view(np.int64))


def _read_labels(codec: LabelNumber, numbers: np.ndarray[tuple[int], np.dtype[np.int32]]) -> pa.Array:
    known, place = np.unique(numbers, return_inverse=True)
    labels = [codec.labels.get(number, str(number)) for number in known.tolist()]
    return pa.array(labels, pa.string()).take(pa.array(place.reshape(-1)))


def _read_repeated(member: MessageMember, at: Cursor, occurrences: dict[int, Occurrences]) -> pa.Array:
    codec = member.codec
    if codec.wire_type != SIZED and SIZED in occurrences:
        assert isinstance(codec, Scalar | LabelNumber)
        if len(occurrences) > 1:
            at.fail(occurrences[codec.wire_type].owners, NEEDS_ROW_READER)
        one = unpack_items(codec.wire_type, at, occurrences[SIZED])
    else:
        one = occurrences.get(codec.wire_type, Occurrences.none())
    if isinstance(codec, MapEntries):
        return _read_pairs(codec, at, one)
    items = _read_values(codec, at, one) if len(one.owners) else pa.array([], codec.wire)
    return pa.ListArray.from_arrays(count_list_offsets(one.owners, len(at)), items)


def _read_pairs(codec: MapEntries, at: Cursor, one: Occurrences) -> pa.MapArray:
    keys, values = read_messages(codec.pair, _inside(at, one)).flatten()
    owners = one.owners
    if keys.null_count:  # no UTF-8: their messages are marked bad already
        keep = valid_mask(keys)
        owners, keys, values = owners[keep], keys.filter(pa.array(keep)), values.filter(pa.array(keep))
    return pa.MapArray.from_arrays(count_list_offsets(owners, len(at)), keys, values)
