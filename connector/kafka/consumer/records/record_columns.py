"""Bytes of records -> columns: offsets, keys, values as Arrow arrays, all records of many batches in one step (pure).

Only where each record begins is found one after the other, as every record's length stands in front of it; all fields
are then read side by side, and keys and values are taken over as windows on the fetched bytes. A producer may write
anything: no size is believed before it was seen to end within its record.

Source: Kafka's protocol documentation, "Record" (format version 2). Cost: about 1 us a record.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.kafka.consumer.records.unreadable_records import UnreadableRecords
from serde.arrays import Bytes, Ints, Mask

_CONTINUATION_BIT = 0x80
_LOW_SIZE_BITS = _CONTINUATION_BIT | 1
"""Of the first byte of a size: that it continues, and its sign."""

_TWO_BYTES_MORE = 2 - (_CONTINUATION_BIT >> 1)
"""The bytes of a size of two, less the bit that says that the first goes on."""

_INLINE_BYTES = 12
"""Values up to this size stand in an Arrow view itself."""

_MIN_RECORD_BYTES = 6
"""Bytes of a record without key and value: one for its length, and one for each field in front of its headers."""

_LENGTH_BYTES, _LENGTH_BITS, _VARLONG_BITS = 5, 35, 70
"""What five and ten bytes of a varint hold, which are the most for numbers of 32 and 64 bits."""

_MANY_SECTIONS = 48
"""From so many on a step of numpy costs less than their records one by one."""

_MAX_BATCH_OFFSETS = 2**31
"""Offsets that a batch can span."""

_BEHIND = "a record that ends behind its batch"
_PADDING = 16
_MAX_VIEW_BYTES = 2**31 - 64
"""Places in Arrow's views are numbers of 32 bits."""


@attrs.frozen
class BatchSection:
    """Where one batch's records stand in `data`, how many they are, the offset that theirs count from, and the last."""

    start: int
    end: int
    count: int
    base: int
    last: int = 2**63 - 1


@attrs.frozen(eq=False)
class BatchSections:
    """Sections as columns, fields as `BatchSection` has them."""

    start: Ints
    end: Ints
    count: Ints
    base: Ints
    last: Ints

    @classmethod
    def of(cls, sections: Sequence[BatchSection]) -> BatchSections:
        """Take single sections."""
        return cls(*np.array([attrs.astuple(one) for one in sections], np.int64).reshape(-1, 5).T)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.start)

    def cut(self, wanted: slice) -> BatchSections:
        """Return some of them, placed from the start of the first."""
        first = self.start[wanted][:1]
        start, end = self.start[wanted] - first, self.end[wanted] - first
        return BatchSections(start, end, self.count[wanted], self.base[wanted], self.last[wanted])


@attrs.frozen(eq=False)
class RecordColumns:
    """Aligned columns; `headers` is where in `data` the headers of each record begin, `ends` where the record ends."""

    offset: Ints
    key: pa.BinaryArray
    value: pa.BinaryArray
    data: Bytes
    headers: Ints
    ends: Ints


def read_records(data: bytes | memoryview, sections: BatchSections, first: int, end: int) -> RecordColumns:
    """Read the records of all sections whose offsets are from `first` up to, not including, `end`.

    Headers are not looked at: `consumer.record_headers` does, where they are asked for.

    Raises:
        UnreadableRecords: bytes that are no records.
    """
    if len(data) > _MAX_VIEW_BYTES:
        raise UnreadableRecords(f"record batches of {len(data)} bytes; at most {_MAX_VIEW_BYTES} are read at once")
    padded = b"".join((data, bytes(_PADDING)))
    view = np.frombuffer(padded, np.uint8)
    starts, ends = _find_records(padded, view, sections)
    base = np.repeat(sections.base, sections.count)
    _, at, read = read_varints(view, starts)
    _, at, dated = read_varints(view, at + 1)  # the attributes mean nothing; the time is not asked for
    delta, at, placed = read_varints(view, at)
    offset = base + delta
    key_size, key_at, keyed = read_varints(view, at)
    behind, fits = skip_fields(key_at, key_size, ends)
    value_size, value_at, valued = read_varints(view, behind)
    headers, whole = skip_fields(value_at, value_size, ends)
    counted = (delta >= 0) & (delta < _MAX_BATCH_OFFSETS)
    if not (read & dated & placed & counted & keyed & fits & valued & whole).all():
        raise UnreadableRecords("a record whose fields do not end where it does")
    _check_order(offset, sections)
    wanted = (offset >= first) & (offset < end)
    if not wanted.all():
        offset, headers, ends = offset[wanted], headers[wanted], ends[wanted]
        key_at, key_size, value_at, value_size = (a[wanted] for a in (key_at, key_size, value_at, value_size))
    return RecordColumns(
        offset, binary_windows(view, key_at, key_size), binary_windows(view, value_at, value_size), view, headers, ends
    )


def _find_records(data: bytes, view: Bytes, sections: BatchSections) -> tuple[Ints, Ints]:
    """Find where each record begins and ends: they fill their section. `data` has padding behind the last.

    As long as there are many sections with records left, the next of each is found in one step.
    """
    room = np.maximum(sections.end - sections.start, 0) // _MIN_RECORD_BYTES
    wrong = np.flatnonzero((sections.count < 0) | (sections.count > room))
    if len(wrong):
        room_bytes = int(sections.end[wrong[0]] - sections.start[wrong[0]])
        raise UnreadableRecords(f"{sections.count[wrong[0]]} records are said to be in {room_bytes} bytes")
    place = np.cumsum(sections.count) - sections.count
    starts, ends = np.empty((2, int(sections.count.sum())), np.int64)
    rows, at, found = np.flatnonzero(sections.count > 0), sections.start.copy(), 0
    while len(rows) >= _MANY_SECTIONS:
        size, behind, read = read_varints(view, at[rows])
        after = behind + np.where(read, size, -1)
        if not (read & (behind - at[rows] <= _LENGTH_BYTES) & (size >= 0) & (after <= sections.end[rows])).all():
            raise UnreadableRecords("a record whose size is none, or that ends behind its batch")
        starts[place[rows] + found], ends[place[rows] + found] = at[rows], after
        at[rows], found = after, found + 1
        rows = rows[sections.count[rows] > found]
    for row in rows.tolist():
        first, behind_last = int(place[row]) + found, int(place[row] + sections.count[row])
        span = int(at[row]), int(sections.end[row]), behind_last - first
        behinds = _walk_usual_records(data, view, *span)
        if behinds is None:
            behinds = np.array(_walk_records(data, *span), np.int64)
        starts[first], starts[first + 1 : behind_last], ends[first:behind_last] = at[row], behinds[:-1], behinds
        at[row] = behinds[-1]
    if (at != sections.end).any():
        raise UnreadableRecords("a record batch with more bytes than its records have")
    return starts, ends


def _walk_usual_records(data: bytes, view: Bytes, at: int, end: int, count: int) -> Ints | None:
    """Find the same as `_walk_records` in half the time where all sizes take two bytes: of 64 to 8,191 bytes.

    Whether they do is only seen afterwards; None where they do not.
    """
    first, ends = at, list[int]()
    add = ends.append
    try:
        if data[at] < _CONTINUATION_BIT or data[at + 1] >= _CONTINUATION_BIT:
            return None
        for _ in range(count):
            at += (data[at] >> 1) + (data[at + 1] << 6) + _TWO_BYTES_MORE
            add(at)
    except IndexError:
        return None
    behinds = np.array(ends, np.int64)
    starts = np.append(first, behinds[:-1])
    two = ((view[starts] & _LOW_SIZE_BITS) == _CONTINUATION_BIT) & (view[starts + 1] < _CONTINUATION_BIT)
    return behinds if at <= end and two.all() else None


def _walk_records(data: bytes, at: int, end: int, count: int) -> list[int]:
    """Find where the next records of a section end, one after the other."""
    ends: list[int] = []
    for _ in range(count):
        if at >= end:
            raise UnreadableRecords(_BEHIND if at > end else "a record batch with fewer records than it says")
        size = data[at]
        at += 1
        if size >= _CONTINUATION_BIT:
            byte = data[at]
            at += 1
            size += (byte - 1) << 7  # less the bit that says that it continues
            if byte >= _CONTINUATION_BIT:
                size, at = _read_long_size(data, at - 2, end)
        if size & 1:
            raise UnreadableRecords("a record of negative size")
        at += size >> 1
        ends.append(at)
    if at > end:
        raise UnreadableRecords(_BEHIND)
    return ends


def _read_long_size(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the size of a record, zigzag as it is, that takes three bytes or more; give the place behind it too."""
    size = shift = 0
    while shift < _LENGTH_BITS:
        if at >= end:
            raise UnreadableRecords("a record batch with fewer records than it says")
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < _CONTINUATION_BIT:
            return size, at
        shift += 7
    raise UnreadableRecords("a record whose size is no number")


def _check_order(offset: Ints, sections: BatchSections) -> None:
    """Refuse offsets that do not rise within their batch: such records would be read twice, or never."""
    filled = sections.count > 0
    behind = np.cumsum(sections.count[filled])
    rises = np.diff(offset) > 0
    rises[behind[:-1] - 1] = True
    if not rises.all() or (offset[behind - 1] > sections.last[filled]).any():
        raise UnreadableRecords("a record batch whose offsets do not rise, or not up to its last")


def skip_fields(at: Ints, size: Ints, ends: Ints) -> tuple[Ints, Mask]:
    """Go behind fields of these sizes, none for -1, which is null; tells which end within their record.

    Other negative sizes are nobody's. One that does not stays in its place: sums with a size that was made up would
    reach anywhere.
    """
    length = np.maximum(size, 0)
    fits: Mask = (at <= ends) & (length <= ends - at) & (size >= -1)
    return (at + length if fits.all() else np.where(fits, at + length, at)), fits


def read_varints(view: Bytes, at: Ints) -> tuple[Ints, Ints, Mask]:
    """Read a zigzag varint at each place; give the numbers, the places behind them, and which of them end in time."""
    at = np.minimum(at, len(view) - _PADDING)
    byte = view[at].astype(np.int64)
    raw, at = byte & 0x7F, at + 1
    more = np.flatnonzero(byte >= _CONTINUATION_BIT)
    shift = 7
    while len(more) and shift < _VARLONG_BITS:
        byte = view[np.minimum(at[more], len(view) - _PADDING)].astype(np.int64)
        raw[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= _CONTINUATION_BIT]
        shift += 7
    ended = np.ones(len(at), np.bool_)
    ended[more] = False
    # Numbers of 64 bits use the sign's bit: it is no sign before the zigzag is undone.
    return ((raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1)), at, ended


def binary_windows(view: Bytes, at: Ints, size: Ints) -> pa.BinaryArray:
    """Take windows of the bytes over as an Arrow array; a negative size is null.

    Every window has to lie within the bytes (`skip_fields` tells): Arrow copies what it is told.
    """
    null = size < 0
    length = np.where(null, 0, size).astype(np.int32)
    views = np.zeros((len(at), 4), np.int32)
    views[:, 0], views[:, 3] = length, at
    views.view(np.uint8)[:, 4:8] = _cut(view, at, 4)
    _put_inline(views, view, at, length)
    valid = pa.array(~null).buffers()[1] if null.any() else None
    windows = pa.Array.from_buffers(pa.binary_view(), len(at), [valid, pa.py_buffer(views), pa.py_buffer(view)])
    return windows.cast(pa.binary())


def _put_inline(views: npt.NDArray[np.int32], view: Bytes, at: Ints, length: npt.NDArray[np.int32]) -> None:
    short = np.flatnonzero(length <= _INLINE_BYTES)
    if not len(short):
        return
    inside = _cut(view, at[short], _INLINE_BYTES)
    inside[np.arange(_INLINE_BYTES) >= length[short, None]] = 0
    views.view(np.uint8)[short, 4:] = inside


def _cut(view: Bytes, at: Ints, size: int) -> npt.NDArray[np.uint8]:
    """Copy so many bytes from each place: a row of them each. Places lie in front of the padding."""
    # One item per window: rows of bytes take numpy three times as long.
    windows = np.ndarray((len(view) - size + 1,), np.dtype((np.void, size)), view.data, strides=(1,))
    return windows[np.minimum(at, len(windows) - 1)].view(np.uint8).reshape(len(at), size)
