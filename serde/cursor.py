"""bytes of many datums -> numbers and windows: every datum is read at its own place, all of them in one step.

A piece holds the bytes of some datums; a cursor holds where each of them is being read. What runs over the end of its
datum is marked bad and goes on reading zeros, so that garbage in one datum touches no other.
"""

from __future__ import annotations

import numpy as np
from attrs import define

from serde.arrays import Bytes, Ints, Mask

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]

PADDING = 64
TOO_SHORT, TOO_LONG, OUTSIDE_SCHEMA, NOT_UTF8, NEEDS_ROW_READER = 1, 2, 3, 4, 5
"""Why a datum is not read here: ends too early, too late, a value outside its type, no UTF-8; or better one by one."""

_CONTINUATION = 128
_WORD = 8
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_FOLDS = tuple(
    (np.uint64(keep), np.uint64(move), np.uint64(by))
    for keep, move, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_ZIGZAG = np.array([number >> 1 ^ -(number & 1) for number in range(_CONTINUATION)], np.int64)


@define(eq=False)
class DatumBuffer:
    """Bytes of some datums with zeros behind them; `bad` holds the reason per datum, 0 for none."""

    view: Bytes
    words: Words
    home: Ints
    """First byte of each datum: where windows of bad ones are put, so that windows stay in order."""
    void: int
    """A place of zeros, and the end of bad datums: no other datum ends there."""
    bad: Bytes

    @classmethod
    def of(cls, data: Bytes, starts: Ints) -> DatumBuffer:
        """Copies the bytes in front of zeros."""
        size = -(-(len(data) + PADDING) // _WORD) * _WORD
        view = np.zeros(size, np.uint8)
        view[: len(data)] = data
        return cls(view, view.view("<u8"), starts, len(data) + _WORD, np.zeros(len(starts), np.uint8))

    def load(self, at: Ints) -> Words:
        """Eight bytes from each place on, little-endian."""
        index, shift = at >> 3, (at & 7).astype(np.uint64) << np.uint64(3)
        low = self.words[index] >> shift
        # A shift by 64 gives 0, which is right: the first word had all.
        low |= np.left_shift(self.words[index + 1], np.uint64(64) - shift)
        return low


@define(eq=False)
class Cursor:
    """Where the datums `rows` of a piece are being read, and where each ends."""

    piece: DatumBuffer
    rows: Ints
    pos: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, index: Ints) -> Cursor:
        """A cursor over some of them."""
        return Cursor(self.piece, self.rows[index], self.pos[index], self.end[index])

    def put(self, index: Ints, other: Cursor) -> None:
        """Goes on where the cursor over some of them has come to."""
        self.pos[index], self.end[index] = other.pos, other.end

    def fail(self, which: Mask | Ints, reason: int) -> None:
        """Marks datums bad (the first reason stays) and lets them read zeros from here on: by a mask, or by index."""
        rows = self.rows[which]
        self.piece.bad[rows] = np.where(self.piece.bad[rows], self.piece.bad[rows], np.uint8(reason))
        self.pos[which] = self.end[which] = self.piece.void

    def check(self) -> Mask | None:
        """Marks datums that were read beyond their end; None when there are none."""
        over = self.pos > self.end
        if not over.any():
            return None
        self.fail(over, TOO_SHORT)
        return over

    def byte(self) -> Bytes:
        """One byte of each."""
        values = self.piece.view[self.pos]
        self.pos += 1
        self.check()
        return values

    def varint(self) -> Ints:
        """A zigzag varint of each; longer ones than 64 bits are bad."""
        first = self.piece.view[self.pos]
        if not len(first) or first.max() < _CONTINUATION:
            self.pos += 1
            value = _ZIGZAG[first]
        else:
            raw, size = self._long(self.pos)
            self.pos += size
            value = unfold_zigzag(raw)
        over = self.check()
        if over is not None:
            value[over] = 0
        return value

    def unsigned(self) -> Words:
        """A varint of each, its 64 bits as they are; longer ones are bad."""
        first = self.piece.view[self.pos]
        if not len(first) or first.max() < _CONTINUATION:
            self.pos += 1
            value = first.astype(np.uint64)
        else:
            value, size = self._long(self.pos)
            self.pos += size
        over = self.check()
        if over is not None:
            value[over] = 0
        return value

    def pass_varint(self) -> None:
        """Goes behind a varint of each."""
        first = self.piece.view[self.pos]
        if not len(first) or first.max() < _CONTINUATION:
            self.pos += 1
        else:
            stop = ~self.piece.load(self.pos) & _HIGH_BITS
            if (stop == 0).any():
                self.pos += self._long(self.pos)[1]
            else:
                self.pos += _varint_sizes(stop)
        self.check()

    def _long(self, at: Ints) -> tuple[Words, Ints]:
        """Varints of up to ten bytes: their bits and sizes."""
        word = self.piece.load(at)
        stop = ~word & _HIGH_BITS
        raw = word & (_mask_below(stop)) & _LOW_BITS
        for keep, move, by in _FOLDS:
            raw = (raw & keep) | ((raw & move) >> by)
        size = _varint_sizes(stop)
        endless = np.flatnonzero(stop == 0)
        if len(endless):
            ninth, tenth = self.piece.view[at[endless] + 8], self.piece.view[at[endless] + 9]
            two = ninth >= _CONTINUATION
            raw[endless] |= (ninth & np.uint8(127)).astype(np.uint64) << np.uint64(56)
            raw[endless] |= np.where(two, tenth & np.uint8(1), np.uint8(0)).astype(np.uint64) << np.uint64(63)
            size[endless] = 9 + two
            wrong = np.zeros(len(at), np.bool_)
            wrong[endless[two & (tenth > 1)]] = True
            if wrong.any():
                self.fail(wrong, OUTSIDE_SCHEMA)
                raw[wrong], size[wrong] = 0, 0
        return raw, size

    def fixed(self, size: int) -> Ints:
        """Where so many bytes of each start; what has not so many is bad and starts at zeros."""
        at = self.pos.copy()
        self.pos += size
        over = self.check()
        if over is not None:
            at[over] = self.piece.void
        return at

    def windows(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Windows of these sizes, ascending; a size that is negative or beyond the end is bad and becomes 0."""
        starts = self.pos
        wrong = (sizes < 0) | (sizes > self.end - starts)
        if wrong.any():
            self.fail(wrong, TOO_SHORT)
            sizes = np.where(wrong, 0, sizes)
        self.pos = starts + sizes
        failed = self.end == self.piece.void
        if failed.any():
            starts = np.where(failed, self.piece.home[self.rows], starts)
            sizes = np.where(failed, 0, sizes)
        return starts, sizes


def unfold_zigzag(raw: Words) -> Ints:
    """0, 1, 2, 3 -> 0, -1, 1, -2."""
    value: Ints = ((raw >> _ONE) ^ (~(raw & _ONE) + _ONE)).view(np.int64)
    return value


def _mask_below(stop: Words) -> Words:
    """All bits up to the lowest one set; all ones where none is."""
    lowest = stop & (~stop + _ONE)
    return (lowest << _ONE) - _ONE


def _varint_sizes(stop: Words) -> Ints:
    return (np.bitwise_count(_mask_below(stop)) >> np.uint8(3)).astype(np.int64)
