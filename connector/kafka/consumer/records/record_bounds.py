"""Sections of record batches -> where each of their records begins and ends (pure).

Every record's length stands in front of it, so each is found from the one before it. Many are followed side by side:
from the beginning of each section, and within long ones from places that look like a record's beginning. Such a guess
counts only if what comes from before ends right there; sections in which something else is met are walked record by
record, which also says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from connector.kafka.consumer.records.unreadable_records import UnreadableRecords
from serde.arrays import Bytes, Ints, Mask

_CONTINUATION_BIT = 0x80
_MIN_RECORD_BYTES = 6
"""Bytes of a record without key and value: one for its length, and one for each field in front of its headers."""

_LENGTH_BITS = 35
"""What five bytes of a varint hold, which are the most for numbers of 32 bits."""

_FEW_PATHS = 48
"""Of fewer a step of numpy costs more than their records one by one."""

_PATH_RECORDS, _MAX_STEPS = 32, 160
"""About so many records one path has within a long section; what is not at its end after so many steps is walked."""

_GUESS_BYTES, _MAX_GUESS_BYTES = 16, 4096
_SIZE_BYTES = 2
_BEHIND = "a record that ends after its batch"
_FAR = 1 << 40


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


def _build_steps() -> Ints:
    """Map the first two bytes of a record, the lower one first, to its bytes; `_FAR` where two do not tell."""
    low, high = np.arange(1 << 8), np.arange(1 << 8)[:, None]
    one = np.broadcast_to((low >> 1) + 1, (256, 256))
    two = ((low & 0x7F) >> 1) + (high << 6) + _SIZE_BYTES
    steps = np.where(low < _CONTINUATION_BIT, one, np.where(high < _CONTINUATION_BIT, two, _FAR))
    steps[:, 1::2] = _FAR  # a negative size
    return steps.ravel().astype(np.int64)


_STEPS = _build_steps()


def find_records(data: bytes | memoryview, view: Bytes, sections: BatchSections) -> tuple[Ints, Ints]:
    """Find where each record begins and ends: they fill their section.

    Raises:
        UnreadableRecords: sizes that are none, or do not fill their section.
    """
    room = np.maximum(sections.end - sections.start, 0) // _MIN_RECORD_BYTES
    wrong = np.flatnonzero((sections.count < 0) | (sections.count > room))
    if len(wrong):
        room_bytes = int(sections.end[wrong[0]] - sections.start[wrong[0]])
        raise UnreadableRecords(f"{sections.count[wrong[0]]} records are said to be in {room_bytes} bytes")
    starts, left = _follow_paths(view, sections)
    walked = [_walk_section(data, sections, row) for row in left.tolist()]
    if walked:
        starts = np.sort(np.concatenate([starts, *walked]))
    ends = np.append(starts[1:], 0)
    filled = sections.count > 0
    ends[np.cumsum(sections.count[filled]) - 1] = sections.end[filled]
    return starts, ends


def _follow_paths(view: Bytes, sections: BatchSections) -> tuple[Ints, Ints]:
    """Return the records of the sections that could be followed, ascending, and which sections could not."""
    owner, at = _choose_starts(view, sections)
    if len(at) < _FEW_PATHS:
        return np.zeros(0, np.int64), np.arange(len(sections))
    limit = sections.end[owner]
    same = owner[1:] == owner[:-1]
    limit[:-1][same] = at[1:][same]
    met, paths, ended = _follow(view, at, limit)
    found = np.bincount(owner[paths], minlength=len(sections))
    good = found == sections.count
    good[owner[~ended]] = False
    # Of no records nothing may be left over.
    good &= (sections.count > 0) | (sections.start == sections.end)
    if not good.all():
        met = met[good[owner[paths]]]
    return np.sort(met), np.flatnonzero(~good)


def _choose_starts(view: Bytes, sections: BatchSections) -> tuple[Ints, Ints]:
    """Return from where records are followed: the section of each place, and the place, ascending."""
    rows = np.flatnonzero(sections.count > 0)
    guessed, guesses = _guess_starts(view, sections)
    owner, at = np.concatenate([rows, guessed]), np.concatenate([sections.start[rows], guesses])
    order = np.argsort(at, kind="stable") if len(guesses) else slice(None)
    return owner[order], at[order]


def _guess_starts(view: Bytes, sections: BatchSections) -> tuple[Ints, Ints]:
    """Find places within long sections that look like the beginning of a record of 64 bytes or more: a size of two
    bytes, then attributes, which are 0; and another one where it ends.
    """
    none, pieces = np.zeros(0, np.int64), sections.count // _PATH_RECORDS
    size = np.maximum(sections.end - sections.start, 0) // np.maximum(sections.count, 1)
    rows = np.flatnonzero((pieces > 1) & (size < _MAX_GUESS_BYTES // 2))
    if not len(rows):
        return none, none
    more = pieces[rows] - 1
    owner = np.repeat(rows, more)
    turn = np.arange(len(owner)) - np.repeat(np.cumsum(more) - more, more) + 1
    low = sections.start[owner] + turn * (sections.end - sections.start)[owner] // pieces[owner]
    width = min(int(2 * size[rows].max()) + _GUESS_BYTES, len(view))
    windows = np.lib.stride_tricks.as_strided(view, (len(view) - width + 1, width), (1, 1), writeable=False)
    low = np.minimum(low, len(view) - width)
    look = windows[low]
    likely = (look[:, 2:] == 0) & (look[:, :-2] >= _CONTINUATION_BIT) & (look[:, 1:-1] < _CONTINUATION_BIT)
    at = low + likely.argmax(axis=1)
    after = np.minimum(at + _STEPS[_view_pairs(view)[at]], len(view) - _SIZE_BYTES - 1)
    good = likely.any(axis=1) & (at < sections.end[owner]) & (at > sections.start[owner])
    good &= (after >= sections.end[owner]) | (view[after + _SIZE_BYTES] == 0)
    good[1:] &= at[1:] > at[:-1]
    return owner[good], at[good]


def _view_pairs(view: Bytes) -> npt.NDArray[np.uint16]:
    """View each byte with the one behind it as a number, the first one lower."""
    return np.ndarray((max(len(view) - 1, 0),), np.dtype("<u2"), view.data, strides=(1,))


def _follow(view: Bytes, at: Ints, limit: Ints) -> tuple[Ints, Ints, Mask]:
    """Go from each place to its limit; give the records that are met, on which path, and which paths end there."""
    pairs, paths, ended = _view_pairs(view), np.arange(len(at)), np.zeros(len(at), np.bool_)
    met, met_by = [], []
    for _ in range(_MAX_STEPS):
        met.append(at)
        met_by.append(paths)
        after = at + _STEPS[pairs[at]]
        on = after < limit - 1
        if not on.all():
            ended[paths[after == limit]] = True
            after, limit, paths = after[on], limit[on], paths[on]
        at = after
        if not len(at):
            break
    return np.concatenate(met), np.concatenate(met_by), ended


def _walk_section(data: bytes | memoryview, sections: BatchSections, row: int) -> Ints:
    """Find the records of one section, one after the other."""
    start, end, count = (int(column[row]) for column in (sections.start, sections.end, sections.count))
    ends = _walk_records(bytes(data[start:end]) + b"\0", end - start, count)
    if (ends[-1] if ends else 0) != end - start:
        raise UnreadableRecords("a record batch with more bytes than its records have")
    return start + np.array([0, *ends[:-1]] if ends else [], np.int64)


def _walk_records(data: bytes, end: int, count: int) -> list[int]:
    """Find where the records of a section end; a byte stands behind it."""
    ends: list[int] = []
    at = 0
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
