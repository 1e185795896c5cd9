"""Records as they were fetched -> some of their headers as columns (pure); few batches need any.

Source: Kafka's protocol documentation, "Record Header". Cost: a pass of numpy per header that a record has; the many
headers of a few records are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.records.record_columns import RecordColumns, binary_windows, read_varints, skip_fields
from serde.arrays import Bytes, Ints, Mask

_MIN_HEADER_BYTES = 2
"""Bytes of a header without name and value: their sizes."""

_FEW_RECORDS, _MANY_HEADERS = 32, 16
"""So few records with more headers than so many are read one by one."""

_MAX_VARINT_BYTES, _CONTINUATION_BIT, _VARLONG_BITS = 10, 0x80, 64


@attrs.frozen(eq=False)
class HeaderColumns:
    """Columns of headers, aligned with their records; `broken` marks records whose headers do not end where they do."""

    columns: tuple[pa.BinaryArray, ...]
    broken: Mask


@attrs.frozen(eq=False)
class _HeaderStep:
    """Headers of the records `rows`, some of which may be there again: where name and value stand, and their sizes."""

    rows: Ints
    name_at: Ints
    name_size: Ints
    value_at: Ints
    value_size: Ints


def read_headers(found: RecordColumns, names: Sequence[str]) -> HeaderColumns:
    """Return the first header of each of these names, null where a record has none, or broken headers."""
    count = len(found.offset)
    broken = np.zeros(count, np.bool_)
    if (found.ends - found.headers == 1).all() and not found.data[found.headers].any():
        return HeaderColumns(tuple(pa.nulls(count, pa.binary()) for _ in names), broken)  # of no record, as usual
    windows = [(np.zeros(count, np.int64), np.full(count, -1, np.int64)) for _ in names]
    untold = [np.ones(count, np.bool_) for _ in names]
    wanted = [np.frombuffer(name.encode(), np.uint8) for name in names]
    for step in _iter_header_steps(found, broken):
        for (place, size), word, open_ in zip(windows, wanted, untold, strict=True):
            same = (step.name_size == len(word)) & open_[step.rows]
            same[same] = (found.data[step.name_at[same, None] + np.arange(len(word))] == word).all(axis=1)
            # The last word counts, and is to be the first header's.
            rows = step.rows[same][::-1]
            place[rows], size[rows], open_[rows] = step.value_at[same][::-1], step.value_size[same][::-1], False
    columns = [binary_windows(found.data, place, np.where(broken, -1, size)) for place, size in windows]
    return HeaderColumns(tuple(columns), broken)


def read_first_header(found: RecordColumns, name: str) -> bytes | None:
    """Return the header of this name of the first record; None without it, without records, or if it cannot be read."""
    if not len(found.offset):
        return None
    header_count, at, read = read_varints(found.data, found.headers[:1])
    if not read[0] or not 0 < header_count[0] <= found.ends[0] - at[0]:
        return None
    step, end = _read_remaining(found, 0, int(at[0]), int(header_count[0]))
    data = found.data[: int(found.ends[0])].tobytes()
    places = zip(step.name_at, step.name_size, step.value_at, step.value_size, strict=True)
    values = (
        data[at_ : at_ + size] for from_, long, at_, size in places if data[from_ : from_ + long] == name.encode()
    )
    return None if end < 0 else next(values, None)


def list_headers(found: RecordColumns, row: int) -> list[tuple[str, bytes | None]]:
    """Return all headers of one record, in order, those in front of a broken one."""
    end = int(found.ends[row])
    header_count, at = _read_varint(found.data[:end], int(found.headers[row]))
    if not 0 < header_count <= (end - at) // _MIN_HEADER_BYTES or at < 0:
        return []
    step, _ = _read_remaining(found, row, at, header_count)
    columns = (step.name_at, step.name_size, step.value_at, step.value_size)
    data, headers = found.data, []
    for name_at, name_size, value_at, value_size in zip(*(column.tolist() for column in columns), strict=True):
        value = None if value_size < 0 else data[value_at : value_at + value_size].tobytes()
        headers.append((data[name_at : name_at + name_size].tobytes().decode(errors="replace"), value))
    return headers


def _iter_header_steps(found: RecordColumns, broken: Mask) -> Iterator[_HeaderStep]:
    """Return the headers of all records, the first of each, then the second; marks records where one cannot be read."""
    header_count, at, read = read_varints(found.data, found.headers)
    # More than there are bytes for cannot be, and would be looked for long.
    broken |= ~read | (at > found.ends) | (header_count < 0) | (header_count > (found.ends - at) // _MIN_HEADER_BYTES)
    rows, rounds = np.flatnonzero(~broken & (header_count > 0)), 0
    while len(rows):
        if rounds >= _MANY_HEADERS and len(rows) <= _FEW_RECORDS:
            for row in rows.tolist():
                step, at[row] = _read_remaining(found, row, int(at[row]), int(header_count[row]))
                yield step
            break
        rounds += 1
        ends = found.ends[rows]
        name_size, name_at, named = read_varints(found.data, at[rows])
        behind, name_fits = skip_fields(name_at, name_size, ends)
        value_size, value_at, valued = read_varints(found.data, behind)
        after, value_fits = skip_fields(value_at, value_size, ends)
        good = named & name_fits & (name_size >= 0) & valued & value_fits
        broken[rows[~good]] = True
        at[rows] = after
        header_count[rows] -= 1
        columns = (rows, name_at, name_size, value_at, value_size)
        yield _HeaderStep(*(column if good.all() else column[good] for column in columns))
        rows = rows[good & (header_count[rows] > 0)]
    broken |= at != found.ends


def _read_remaining(found: RecordColumns, row: int, at: int, header_count: int) -> tuple[_HeaderStep, int]:
    """Read the headers that one record has left, byte after byte; -1 in place of their end where one is broken."""
    data, end = found.data[: int(found.ends[row])].tobytes(), int(found.ends[row])
    headers: list[tuple[int, int, int, int]] = []
    for _ in range(header_count):
        name_size, name_at = _read_varint(data, at)
        value_size, value_at = _read_varint(data, name_at + name_size) if 0 <= name_size <= end - name_at else (0, -1)
        at = value_at + max(value_size, 0)
        if value_at < 0 or value_size < -1 or at > end:
            at = -1
            break
        headers.append((name_at, name_size, value_at, value_size))
    columns = np.array(headers, np.int64).reshape(-1, 4).T
    return _HeaderStep(np.full(len(headers), row), *columns), at


def _read_varint(data: bytes | Bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint; give it, and the place behind it, or a place of -1 where there is none."""
    raw = 0
    for place in range(_MAX_VARINT_BYTES if at >= 0 else 0):
        if at + place >= len(data):
            break
        byte = int(data[at + place])
        raw |= (byte & 0x7F) << 7 * place
        if byte < _CONTINUATION_BIT:
            raw &= (1 << _VARLONG_BITS) - 1
            return raw >> 1 ^ -(raw & 1), at + place + 1
    return -1, -1
