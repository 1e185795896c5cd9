"""windows of packed numbers -> the numbers, all windows in one step."""

from __future__ import annotations

import numpy as np

from serde.arrays import Ints, Mask
from serde.cursor import OUTSIDE_SCHEMA, TOO_SHORT, Cursor, Words
from serde.protobuf.schemas.codec import FIXED64, VARINT
from serde.protobuf.wire_scan import Occurrences

_CONTINUATION = 128
_MAX_VARINT_BYTES = 10


def unpack_items(wire_type: int, at: Cursor, windows: Occurrences) -> Occurrences:
    """The items of all windows in their order; a window that does not end where its last number does is bad."""
    if wire_type == VARINT:
        return _unpack_varints(at, windows)
    size = 8 if wire_type == FIXED64 else 4
    wrong = windows.sizes % size != 0
    if wrong.any():
        at.fail(windows.owners[wrong], TOO_SHORT)
    counts = np.where(wrong, 0, windows.sizes // size)
    places = np.repeat(windows.places, counts) + size * _number_items(counts)
    words = at.piece.load(places) if len(places) else np.zeros(0, np.uint64)
    return Occurrences(np.repeat(windows.owners, counts), places, words, np.zeros(0, np.int64))


def _number_items(counts: Ints) -> Ints:
    """0, 1, ... within each window."""
    total = int(counts.sum())
    first = np.repeat(np.cumsum(counts) - counts, counts)
    numbers: Ints = np.arange(total) - first
    return numbers


def _unpack_varints(at: Cursor, windows: Occurrences) -> Occurrences:
    view = at.piece.view
    filled = windows.sizes > 0
    open_end = filled & (view[windows.places + np.maximum(windows.sizes - 1, 0)] >= _CONTINUATION)
    if open_end.any():
        at.fail(windows.owners[open_end], TOO_SHORT)
    sizes = np.where(open_end, 0, windows.sizes)
    places = np.repeat(windows.places, sizes) + _number_items(sizes)
    owners = np.repeat(windows.owners, sizes)
    data = view[places]
    ends = np.flatnonzero(data < _CONTINUATION)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if len(ends) else ends
    words, wrong = _join_bits(data, starts, ends)
    if wrong.any():
        at.fail(owners[ends[wrong]], OUTSIDE_SCHEMA)
    return Occurrences(owners[ends], places[starts], words, np.zeros(0, np.int64))


def _join_bits(data: np.ndarray[tuple[int], np.dtype[np.uint8]], starts: Ints, ends: Ints) -> tuple[Words, Mask]:
    lengths = ends - starts + 1
    words = np.zeros(len(starts), np.uint64)
    wrong: Mask = lengths > _MAX_VARINT_BYTES
    for index in range(min(int(lengths.max(initial=0)), _MAX_VARINT_BYTES)):
        inside = lengths > index
        byte = data[np.where(inside, starts + index, starts)].astype(np.uint64) & np.uint64(127)
        if index == _MAX_VARINT_BYTES - 1:
            wrong |= inside & (byte > 1)
        words |= np.where(inside, byte << np.uint64(7 * index), np.uint64(0))
    return words, wrong
