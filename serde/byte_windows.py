"""bytes -> lines: windows into one Arrow value buffer,
and newline-delimited text cut from them without Python per row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from serde.arrays import Bytes, Ints, Mask

_NEWLINE = 10
_INT32_MAX = 2**31 - 1
_WORD, _SHORT = 8, 64
"""What is compared at once, and words that are compared so."""


@frozen(eq=False)
class ByteWindows:
    """Byte strings as windows [starts, ends) into `data`; windows ascend and do not overlap."""

    data: pa.Buffer
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Ints:
        """Bytes per window."""
        return self.ends - self.starts

    @property
    def view(self) -> Bytes:
        """The value buffer as bytes, not copied."""
        return np.frombuffer(self.data, np.uint8)

    def text(self, index: int) -> bytes:
        """One window as bytes (copies it)."""
        return bytes(self.data[int(self.starts[index]) : int(self.ends[index])])

    def pick(self, index: Ints | Mask) -> ByteWindows:
        """The windows at `index` (ascending) or under a mask."""
        if index.dtype == np.bool_ and index.all():
            return self
        return ByteWindows(self.data, self.starts[index], self.ends[index])

    def cut(self, head: int, tail: int) -> ByteWindows:
        """Every window shortened by `head` bytes in front and `tail` behind."""
        return ByteWindows(self.data, self.starts + head, self.ends - tail)

    def first(self) -> Bytes:
        """First byte of each window, 0 for an empty one."""
        return self._at(self.starts)

    def last(self) -> Bytes:
        """Last byte of each window, 0 for an empty one."""
        return self._at(self.ends - 1)

    def _at(self, where: Ints) -> Bytes:
        filled = self.ends > self.starts
        if filled.all():
            return self.view[where]
        out = np.zeros(len(self), np.uint8)
        out[filled] = self.view[where[filled]]
        return out

    def is_object(self) -> Mask:
        """True where the text starts with { and ends with }: what the columnar reader may be given."""
        tidy: Mask = (self.first() == ord("{")) & (self.last() == ord("}")) & (self.sizes > 1)
        return tidy

    def starts_with(self, prefix: bytes) -> Mask:
        """True where the text starts with `prefix`; cost: a look at eight bytes at a time, of those left over.

        Long ones are compared by memcmp in C++, on the gaps and all, since nothing is copied then.
        """
        hit: Mask = self.sizes >= len(prefix)
        if len(prefix) <= _SHORT:
            return self._compare(hit, self.starts, prefix)
        hit = self._compare(hit, self.starts, prefix[:_WORD])
        if not hit.any():
            return hit
        base, bounds = int(self.starts[0]), np.empty(2 * len(self), np.int64)
        bounds[0::2], bounds[1::2] = self.starts - base, self.ends - base
        values = self.data.slice(base, int(self.ends[-1]) - base)
        mixed = pa.Array.from_buffers(pa.large_binary(), 2 * len(self) - 1, [None, pa.py_buffer(bounds), values])
        whole: Mask = pc.starts_with(mixed, prefix).to_numpy(zero_copy_only=False)[0::2]
        return whole

    def ends_with(self, suffix: bytes) -> Mask:
        """True where the text ends with `suffix`; cost: as `starts_with`."""
        hit: Mask = self.sizes >= len(suffix)
        return self._compare(hit, self.ends - len(suffix), suffix)

    def _compare(self, hit: Mask, places: Ints, word: bytes) -> Mask:
        """Leave in `hit` those at whose place `word` stands, all of it within the text."""
        size = min(_WORD, len(word))
        kind = np.dtype(f"V{size}") if size < _WORD else np.dtype(np.uint64)
        pieces = np.ndarray(max(self.data.size - size + 1, 0), kind, self.data, strides=(1,)) if size else self.view
        rows = None if hit.all() else np.flatnonzero(hit)
        places = places if rows is None else places[rows]
        for at in _cut_word(len(word)):
            if not len(places):
                break
            same = pieces[places + at] == np.frombuffer(word[at : at + size], kind)
            if not same.all():
                places, rows = places[same], np.flatnonzero(same) if rows is None else rows[same]
        if rows is not None:
            hit[:] = False
            hit[rows] = True
        return hit

    def contains(self, word: bytes) -> Mask:
        """True where `word` is somewhere in the text; looks at every byte."""
        if not len(self):
            return np.zeros(0, np.bool_)
        hit: Mask = pc.match_substring(window_array(self.data, self.starts, self.ends), word).to_numpy(
            zero_copy_only=False
        )
        return hit

    def equals(self, word: bytes) -> Mask:
        """True where the whole text is `word`."""
        hit: Mask = self.sizes == len(word)
        if hit.any():
            chosen = np.flatnonzero(hit)
            hit[chosen] = self.pick(chosen).starts_with(word)
        return hit

    def lines(self, low: int, high: int, last: int | None = None) -> pa.Buffer:
        """The windows low..high joined by newlines; at most one copy when there is room behind each, else two.

        last: a byte that stands in place of the last of each window, which is not empty then.
        """
        starts, ends = self.starts[low:high], self.ends[low:high]
        room = self._has_room(low, high)
        if ends[-1] - starts[0] > _INT32_MAX - 1 or (last is not None and not room):
            ending = b"" if last is None else bytes([last])
            texts = (self.text(index) for index in range(low, high))
            return pa.py_buffer(b"\n".join(text[: len(text) - len(ending)] + ending for text in texts))
        if room and (last is not None or len(starts) > 1):
            return _join_with_newlines(self.data, starts, ends + 1, last)
        parts = window_array(self.data, starts, ends)
        whole = pa.ListArray.from_arrays(pa.array([0, len(parts)], pa.int32()), parts)
        return pc.binary_join(whole, b"\n")[0].as_buffer()

    def _has_room(self, low: int, high: int) -> bool:
        """True where a byte behind each of the windows is in none of them."""
        starts, ends = self.starts[low:high], self.ends[low:high]
        return bool(ends[-1] < self.data.size and (starts[1:] > ends[:-1]).all())


def _cut_word(size: int) -> list[int]:
    """Return where pieces of eight bytes begin that cover so many; the last may share some with the one before."""
    return [*range(0, max(size - _WORD, 0), _WORD), max(size - _WORD, 0)] if size else []


def window_array(data: pa.Buffer, starts: Ints, ends: Ints) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Windows of a buffer as a binary array; not copied when they touch each other."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    base = int(starts[0])
    wide = int(ends[-1]) - base > _INT32_MAX
    kind, width = (pa.large_binary(), np.int64) if wide else (pa.binary(), np.int32)
    values = data.slice(base, int(ends[-1]) - base)
    if bool((starts[1:] == ends[:-1]).all()):
        bounds = np.append(starts, ends[-1:]) - base
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bounds.astype(width)), values])
    bounds = np.empty(2 * count, width)
    bounds[0::2] = starts - base
    bounds[1::2] = ends - base
    mixed = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(bounds), values])
    return mixed.take(pa.array(np.arange(0, 2 * count, 2)))


def _join_with_newlines(data: pa.Buffer, starts: Ints, ends: Ints, last: int | None) -> pa.Buffer:
    """Copies windows whose last byte is free and overwrites that byte by a newline in the copy, and the one before it
    by `last`.
    """
    parts = window_array(data, starts, ends)
    copied = parts.buffers()[2]
    if not copied.is_mutable or copied.address == data.address + int(starts[0]):
        copied = pa.py_buffer(bytearray(copied))
    offsets = np.cumsum(ends - starts) - 1
    text = np.frombuffer(copied, np.uint8)
    text[offsets] = _NEWLINE
    if last is not None:
        text[offsets - 1] = last
    return copied.slice(0, int(offsets[-1]))


def byte_windows(data: pa.Array | pa.ChunkedArray) -> tuple[ByteWindows, Mask]:
    """Windows of a binary or string array (large or not, sliced or not) and its null mask."""
    flat = data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data
    if pa.types.is_null(flat.type):
        flat = flat.cast(pa.binary())
    wide = pa.types.is_large_binary(flat.type) or pa.types.is_large_string(flat.type)
    if not wide and not pa.types.is_binary(flat.type) and not pa.types.is_string(flat.type):
        raise TypeError(f"messages must be binary, not {flat.type}")
    count = len(flat)
    if not count:
        return ByteWindows(pa.py_buffer(b""), np.zeros(0, np.int64), np.zeros(0, np.int64)), np.zeros(0, np.bool_)
    raw = np.frombuffer(flat.buffers()[1], np.int64 if wide else np.int32)
    bounds: Ints = raw[flat.offset : flat.offset + count + 1].astype(np.int64)
    nulls = flat.is_null().to_numpy(zero_copy_only=False)
    return ByteWindows(flat.buffers()[2] or pa.py_buffer(b""), bounds[:-1], bounds[1:]), nulls
