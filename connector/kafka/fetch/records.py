"""Bytes of records -> columns: offsets, keys, values as Arrow arrays, all records of many batches in one step (pure).

Only where each record begins is found one after the other, as every record's length stands in front of it; all fields
are then read side by side, and keys and values are taken over as windows on the fetched bytes.

Source: Kafka's protocol documentation, "Record" (format version 2). Cost: about 1 us a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.kafka.fetch.batches import Unreadable
from serde.bits import Bytes, Ints

_MORE = 0x80
_INLINE = 12
"""Values up to this size stand in an Arrow view itself."""

_PADDING = 16
_LARGEST_BYTES = 2**31 - 64
"""Places in Arrow's views are numbers of 32 bits."""


@attrs.frozen
class Section:
    """Where one batch's records stand in `data`, how many they are, and the offset that theirs count from."""

    start: int
    end: int
    count: int
    base: int


@attrs.frozen(eq=False)
class Records:
    """Aligned columns; `headers` is where in `data` the headers of each record begin."""

    offset: Ints
    key: pa.BinaryArray
    value: pa.BinaryArray
    data: Bytes
    headers: Ints


def records(data: bytes | memoryview, sections: Sequence[Section], first: int, end: int) -> Records:
    """Read the records of all sections whose offsets are from `first` up to, not including, `end`.

    Raises:
        Unreadable: bytes that are no records.
    """
    if len(data) > _LARGEST_BYTES:
        raise Unreadable(f"record batches of {len(data)} bytes; at most {_LARGEST_BYTES} are read at once")
    view = np.zeros(len(data) + _PADDING, np.uint8)
    view[: len(data)] = np.frombuffer(data, np.uint8)
    starts, ends = _starts(data, sections)
    base = np.repeat(np.array([s.base for s in sections], np.int64), [s.count for s in sections])
    _, at = varint(view, starts)
    _, at = varint(view, at + 1)  # the attributes mean nothing; the time is not asked for
    delta, at = varint(view, at)
    offset = base + delta
    key_size, key_at = varint(view, at)
    value_size, value_at = varint(view, key_at + np.maximum(key_size, 0))
    headers = value_at + np.maximum(value_size, 0)
    if (headers > ends).any():
        raise Unreadable("a record that is longer than it says")
    wanted = (offset >= first) & (offset < end)
    if not wanted.all():
        offset, headers = offset[wanted], headers[wanted]
        key_at, key_size, value_at, value_size = (a[wanted] for a in (key_at, key_size, value_at, value_size))
    return Records(offset, binary(view, key_at, key_size), binary(view, value_at, value_size), view, headers)


def _starts(data: bytes | memoryview, sections: Iterable[Section]) -> tuple[Ints, Ints]:
    """Find where each record begins and ends."""
    starts: list[int] = []
    ends: list[int] = []
    for section in sections:
        at = section.start
        for _ in range(section.count):
            starts.append(at)
            size = shift = 0
            while True:
                if at >= section.end:
                    raise Unreadable("a record batch with fewer records than it says")
                byte = data[at]
                at += 1
                if byte < _MORE:
                    break
                size |= (byte & 0x7F) << shift
                shift += 7
            at += (size | byte << shift) >> 1
            ends.append(at)
        if at > section.end:
            raise Unreadable("a record that ends behind its batch")
    return np.array(starts, np.int64), np.array(ends, np.int64)


def varint(view: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Read a zigzag varint at each place; give the numbers and the places behind them."""
    at = np.minimum(at, len(view) - _PADDING)
    byte = view[at].astype(np.int64)
    raw, at = byte & 0x7F, at + 1
    more = np.flatnonzero(byte >= _MORE)
    shift = 7
    while len(more) and shift < 64:  # noqa: PLR2004 - bits of a number
        byte = view[np.minimum(at[more], len(view) - _PADDING)].astype(np.int64)
        raw[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= _MORE]
        shift += 7
    return (raw >> 1) ^ -(raw & 1), at


def binary(view: Bytes, at: Ints, size: Ints) -> pa.BinaryArray:
    """Take windows of the bytes over as an Arrow array; a negative size is null."""
    null = size < 0
    length = np.where(null, 0, size).astype(np.int32)
    views = np.zeros((len(at), 4), np.int32)
    views[:, 0], views[:, 3] = length, at
    for place in range(4):
        views.view(np.uint8)[:, 4 + place] = view[np.minimum(at + place, len(view) - 1)]
    _put_inline(views, view, at, length)
    valid = pa.array(~null).buffers()[1] if null.any() else None
    windows = pa.Array.from_buffers(pa.binary_view(), len(at), [valid, pa.py_buffer(views), pa.py_buffer(view)])
    return windows.cast(pa.binary())


def _put_inline(views: npt.NDArray[np.int32], view: Bytes, at: Ints, length: npt.NDArray[np.int32]) -> None:
    short = np.flatnonzero(length <= _INLINE)
    if not len(short):
        return
    places = np.minimum(at[short, None] + np.arange(_INLINE), len(view) - 1)
    inside = np.where(np.arange(_INLINE) < length[short, None], view[places], 0).astype(np.uint8)
    views.view(np.uint8)[short, 4:] = inside
