"""Records as they were fetched -> some of their headers as columns (pure); few batches need any.

Source: Kafka's protocol documentation, "Record Header". Cost: a pass of numpy per header that a record has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.fetch.records import Records, binary, passed, varint
from serde.bits import Ints, Mask

_SMALLEST = 2
"""Bytes of a header without name and value: their sizes."""


@attrs.frozen(eq=False)
class Headers:
    """Columns of headers, aligned with their records; `broken` marks records whose headers do not end where they do."""

    columns: tuple[pa.BinaryArray, ...]
    broken: Mask


@attrs.frozen(eq=False)
class _Step:
    """The next header of the records `rows`: where its name and value stand, and their sizes."""

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
            rows = step.rows[same]
            place[rows], size[rows], open_[rows] = step.value_at[same], step.value_size[same], False
    columns = [binary(found.data, place, np.where(broken, -1, size)) for place, size in windows]
    return Headers(tuple(columns), broken)


def _steps(found: Records, broken: Mask) -> Iterator[_Step]:
    """Give the headers of all records, the first of each, then the second; marks records where one cannot be read."""
    left, at, read = varint(found.data, found.headers)
    # More than there are bytes for cannot be, and would be looked for long.
    broken |= ~read | (at > found.ends) | (left < 0) | (left > (found.ends - at) // _SMALLEST)
    rows = np.flatnonzero(~broken & (left > 0))
    while len(rows):
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
