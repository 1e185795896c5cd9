"""Bytes of records -> columns: offsets, keys, values as Arrow arrays, all records of many batches in one step (pure).

Where each record begins is found first (`record_bounds`); all fields are then read side by side, and keys and values
are taken over as windows on the fetched bytes. A producer may write anything: no size is believed before it was seen to
end within its record.

Source: Kafka's protocol documentation, "Record" (format version 2). Cost: about half a microsecond a record.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.records.record_bounds import BatchSections, find_records
from connector.kafka.consumer.records.unreadable_records import UnreadableRecords
from serde.arrays import Bytes, Ints, Mask

_CONTINUATION_BIT = 0x80
_VARLONG_BITS = 70
"""What ten bytes of a varint hold, which are the most for numbers of 64 bits."""

_MAX_BATCH_OFFSETS = 2**31
"""Offsets that a batch can span."""

_MAX_BYTES = 2**31 - 64
"""Places in Arrow's arrays are numbers of 32 bits."""


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
    if len(data) > _MAX_BYTES:
        raise UnreadableRecords(f"record batches of {len(data)} bytes; at most {_MAX_BYTES} are read at once")
    view = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    starts, ends = find_records(data, view, sections)
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
    """Read a zigzag varint at each place; give the numbers, the places behind them, and which of them end in time.

    Of one that reaches behind the bytes the number is none; the place behind it is behind them, too.
    """
    last = len(view) - 1
    byte = view[np.minimum(at, last)].astype(np.int64)
    raw, at = byte & 0x7F, at + 1
    more = np.flatnonzero(byte >= _CONTINUATION_BIT)
    shift = 7
    while len(more) and shift < _VARLONG_BITS:
        byte = view[np.minimum(at[more], last)].astype(np.int64)
        raw[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= _CONTINUATION_BIT]
        shift += 7
    ended = np.ones(len(at), np.bool_)
    ended[more] = False
    # Numbers of 64 bits use the sign's bit: it is no sign before the zigzag is undone.
    return ((raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1)), at, ended


def binary_windows(view: Bytes, at: Ints, size: Ints) -> pa.BinaryArray:
    """Copy windows of the bytes into an Arrow array; a negative size is null.

    Windows ascend, do not overlap, and lie within the bytes (`skip_fields` tells): Arrow copies what it is told.
    """
    count, null = len(at), size < 0
    if not count:
        return pa.array([], pa.binary())
    lacking = bool(null.any())
    # What is between two windows is a value too, that is not taken.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = (np.where(null, 0, at), np.where(null, 0, at + size)) if lacking else (at, at + size)
    if lacking:
        bounds = np.maximum.accumulate(bounds)
    mixed = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(view)])
    places = np.arange(0, 2 * count, 2, dtype=np.int32)
    return mixed.take(pa.array(places, mask=null) if lacking else pa.array(places))
