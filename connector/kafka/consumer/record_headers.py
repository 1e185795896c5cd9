"""Records as they were fetched -> some of their headers as columns (pure); few batches need any.

Source: Kafka's protocol documentation, "Record Header". Cost: a pass of numpy per header that a record has; the many
headers of a few records are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.record_columns import Records, binary, passed, varint
from serde.arrays import Ints, Mask

_SMALLEST = 2
"""Bytes of a header without name and value: their sizes."""

_FEW, _ROUNDS = 32, 16
"""So few records with more headers than so many are read one by one."""

_LONGEST, _MORE, _BITS = 10, 0x80, 64


@attrs.frozen(eq=False)
class Headers:
    """Columns of headers, aligned with their records; `broken` marks records whose headers do not end where they do."""

    columns: tuple[pa.BinaryArray, ...]
    broken: Mask


@attrs.frozen(eq=False)
class _Step:
    """Headers of the records `rows`, some of which may be there again: where name and value stand, and their sizes."""

    rows: Ints
    name_at: Ints
    name_size: Ints
    value_at: Ints
    value_size: Ints


def header(found: Records, name: str) -> pa.BinaryArray:
    """Give the bytes of the first header of that name, null where a record has none, or broken headers."""
    return headers(found, [name]).columns[0]


def headers(found: Records, names: Sequence[str]) -> Headers:
    """Give the first header of each of these names, null where a record has none, or broken headers."""
    count = len(found.offset)
    broken = np.zeros(count, np.bool_)
    windows = [(np.zeros(count, np.int64), np.full(count, -1, np.int64)) for _ in names]
    untold = [np.ones(count, np.bool_) for _ in names]
    wanted = [np.frombuffer(name.encode(), np.uint8) for name in names]
    for step in _steps(found, broken):
        for (place, size), word, open_ in zip(windows, wanted, untold, strict=True):
            same = (step.name_size == len(word)) & open_[step.rows]
            same[same] = (found.data[step.name_at[same, None] + np.arange(len(word))] == word).all(axis=1)
            # The last word counts, and is to be the first header's.
            rows = step.rows[same][::-1]
            place[rows], size[rows], open_[rows] = step.value_at[same][::-1], step.value_size[same][::-1], False
    columns = [binary(found.data, place, np.where(broken, -1, size)) for place, size in windows]
    return Headers(tuple(columns), broken)


def _steps(found: Records, broken: Mask) -> Iterator[_Step]:
    """Give the headers of all records, the first of each, then the second; marks records where one cannot be read."""
    left, at, read = varint(found.data, found.headers)
    # More than there are bytes for cannot be, and would be looked for long.
    broken |= ~read | (at > found.ends) | (left < 0) | (left > (found.ends - at) // _SMALLEST)
    rows, rounds = np.flatnonzero(~broken & (left > 0)), 0
    while len(rows):
        if rounds >= _ROUNDS and len(rows) <= _FEW:
            for row in rows.tolist():
                step, at[row] = _rest(found, row, int(at[row]), int(left[row]))
                yield step
            break
        rounds += 1
        ends = found.ends[rows]
        name_size, name_at, named = varint(found.data, at[rows])
        behind, name_fits = passed(name_at, name_size, ends)
        value_size, value_at, valued = varint(found.data, behind)
        after, value_fits = passed(value_at, value_size, ends)
        good = named & name_fits & (name_size >= 0) & valued & value_fits
        broken[rows[~good]] = True
        at[rows] = after
        left[rows] -= 1
        columns = (rows, name_at, name_size, value_at, value_size)
        yield _Step(*(column if good.all() else column[good] for column in columns))
        rows = rows[good & (left[rows] > 0)]
    broken |= at != found.ends


def _rest(found: Records, row: int, at: int, left: int) -> tuple[_Step, int]:
    """Read the headers that one record has left, byte after byte; -1 in place of their end where one is broken."""
    data, end = found.data[: int(found.ends[row])].tobytes(), int(found.ends[row])
    headers: list[tuple[int, int, int, int]] = []
    for _ in range(left):
        name_size, name_at = _number(data, at)
        value_size, value_at = _number(data, name_at + name_size) if 0 <= name_size <= end - name_at else (0, -1)
        at = value_at + max(value_size, 0)
        if value_at < 0 or at > end:
            at = -1
            break
        headers.append((name_at, name_size, value_at, value_size))
    columns = np.array(headers, np.int64).reshape(-1, 4).T
    return _Step(np.full(len(headers), row), *columns), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint; give it, and the place behind it, or a place of -1 where there is none."""
    raw = 0
    for place in range(_LONGEST if at >= 0 else 0):
        if at + place >= len(data):
            break
        byte = data[at + place]
        raw |= (byte & 0x7F) << 7 * place
        if byte < _MORE:
            raw &= (1 << _BITS) - 1
            return raw >> 1 ^ -(raw & 1), at + place + 1
    return -1, -1
