"""what is behind a schema id -> the message of its schema: a path of indexes or a number, and the bytes of the message.

Sources: Confluent "Wire format": a zigzag varint for how many indexes there are, then each; a single 0 stands for the
first message, which nearly all are. The AWS Glue Schema Registry library's `ProtobufWireFormatEncoder`: a plain varint,
the message's place among all of its file, in the order of their names.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from serde.arrays import Ints, Mask
from serde.byte_windows import ByteWindows
from serde.cursor import Cursor, DatumBuffer
from serde.messages import Rows

Indexes: TypeAlias = tuple[int, ...]
Place: TypeAlias = Indexes | int
"""Which message of a schema: a path of indexes, or a number."""
Paths: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]
IndexedPart: TypeAlias = tuple[Indexes, Rows, ByteWindows]
"""A path, the positions of its messages, and their bytes."""

NumberedPart: TypeAlias = tuple[int, Rows, ByteWindows]
"""The same with a number."""

_FIRST: Indexes = (0,)
_MAX_DEPTH = 16
_MAX_NUMBER = 2**31 - 1


def split_messages(payload: ByteWindows) -> tuple[list[IndexedPart], Rows]:
    """Return messages by their path, with their positions, and the positions of those that have none."""
    rows = np.arange(len(payload))
    simple: Mask = (payload.sizes > 0) & (payload.first() == 0)
    groups = [(_FIRST, rows[simple], payload.pick(simple).cut(1, 0))] if simple.any() else []
    if simple.all():
        return groups, rows[:0]
    others, bad = _split_paths(payload.pick(~simple))
    where = rows[~simple]
    groups.extend((path, where[at], windows) for path, at, windows in others)
    return groups, where[bad]


def split_numbered_messages(payload: ByteWindows) -> tuple[list[NumberedPart], Rows]:
    """Return messages by their number, with their positions, and the positions of those that have none."""
    at, base = _open_cursor(payload)
    numbers = at.unsigned()
    bad = (at.piece.bad != 0) | (numbers > _MAX_NUMBER)
    good, places = np.flatnonzero(~bad), at.pos + base
    groups = []
    for number in np.unique(numbers[good]).tolist():
        rows = good[numbers[good] == number]
        groups.append((int(number), rows, ByteWindows(payload.data, places[rows], payload.ends[rows])))
    return groups, np.flatnonzero(bad)


def _split_paths(payload: ByteWindows) -> tuple[list[IndexedPart], Rows]:
    at, base = _open_cursor(payload)
    counts = at.varint()
    bad = (counts < 1) | (counts > _MAX_DEPTH) | (at.piece.bad != 0)
    paths: Paths = np.full((len(payload), _MAX_DEPTH), -1, np.int64)
    for depth in range(int(np.where(bad, 0, counts).max(initial=0))):
        index = np.flatnonzero(~bad & (counts > depth))
        below = at.pick(index)
        paths[index, depth] = below.varint()
        at.put(index, below)
        bad |= (at.piece.bad != 0) | ((counts > depth) & (paths[:, depth] < 0))
    return _group_paths(payload, paths, at.pos + base, bad), np.flatnonzero(bad)


def _open_cursor(payload: ByteWindows) -> tuple[Cursor, int]:
    """Return a cursor at the start of each message, and where its bytes begin in those of the payload."""
    base = int(payload.starts[0])
    starts = payload.starts - base
    piece = DatumBuffer.of(payload.view[base : int(payload.ends[-1])], starts)
    return Cursor(piece, np.arange(len(payload)), starts.copy(), payload.ends - base), base


def _group_paths(payload: ByteWindows, paths: Paths, places: Ints, bad: Mask) -> list[IndexedPart]:
    good = np.flatnonzero(~bad)
    if not len(good):
        return []
    known, place = np.unique(paths[good], axis=0, return_inverse=True)
    groups = []
    for number, path in enumerate(known.tolist()):
        rows = good[place.reshape(-1) == number]
        windows = ByteWindows(payload.data, places[rows], payload.ends[rows])
        groups.append((tuple(index for index in path if index >= 0), rows, windows))
    return groups
