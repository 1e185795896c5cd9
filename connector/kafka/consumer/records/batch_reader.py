"""Record batches of a fetch -> columns of their records, and the batches that cannot be read (pure).

All batches are read in one step; where that fails each half is, and so on: one bad batch costs no other, nor much time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from connector.kafka.consumer.records.record_batches import RecordBatch, RecordBatches, decompress
from connector.kafka.consumer.records.record_bounds import BatchSection, BatchSections
from connector.kafka.consumer.records.record_columns import RecordColumns, read_records
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch, UnreadableRecords

MAX_DECOMPRESSED_BYTES = 32 * 1024**2
"""Packed batches are handed on when they are together this large; one batch is never cut."""


@attrs.frozen(eq=False)
class _Group:
    """Where in `data` the records of batches stand that are read in one step."""

    data: bytes | memoryview
    sections: BatchSections


def read_batches(
    batches: RecordBatches, data: memoryview, first: int, end: int, limit: int
) -> Iterator[RecordColumns | UnreadableBatch]:
    """Return the records of batches from `first` up to, not including, `end`, in order.

    Packed ones come some at a time, as they may be much larger than the fetch; one unpacks to `limit` bytes at most.
    """
    kept = batches.filter((batches.last >= first) & (batches.base < end))
    for some in _group_batches(kept, data, limit):
        if isinstance(some, UnreadableBatch):
            yield _clip(some, first, end)
            continue
        yield from _read_group(some, first, end)


def _group_batches(kept: RecordBatches, data: memoryview, limit: int) -> Iterator[_Group | UnreadableBatch]:
    if not len(kept):
        return
    if kept.is_plain:
        yield _Group(data, BatchSections(kept.start, kept.end, kept.count, kept.base, kept.last))
        return
    parts: list[tuple[RecordBatch, bytes | memoryview]] = []
    size = 0
    for batch in kept:
        try:
            parts.append((batch, decompress(batch, data, limit)))
            size += len(parts[-1][1])
        except UnreadableRecords as error:
            yield from _join(parts)
            parts, size = [], 0
            yield UnreadableBatch(batch.base, batch.last, str(error))
        if size >= MAX_DECOMPRESSED_BYTES:
            yield from _join(parts)
            parts, size = [], 0
    yield from _join(parts)


def _join(parts: Sequence[tuple[RecordBatch, bytes | memoryview]]) -> Iterator[_Group]:
    sections, at = [], 0
    for batch, part in parts:
        sections.append(BatchSection(at, at + len(part), batch.count, batch.base, batch.last))
        at += len(part)
    if parts:
        data = parts[0][1] if len(parts) == 1 else b"".join(part for _, part in parts)
        yield _Group(data, BatchSections.of(sections))


def _read_group(group: _Group, first: int, end: int) -> Iterator[RecordColumns | UnreadableBatch]:
    found = _try_to_read(group, first, end)
    if isinstance(found, RecordColumns):
        yield found
    elif len(group.sections) == 1:
        batch = UnreadableBatch(int(group.sections.base[0]), int(group.sections.last[0]), found)
        yield _clip(batch, first, end)
    else:
        middle = len(group.sections) // 2
        for half in (slice(None, middle), slice(middle, None)):
            yield from _read_group(_cut_group(group, half), first, end)


def _try_to_read(group: _Group, first: int, end: int) -> RecordColumns | str:
    """Return the records, or why they cannot be read."""
    try:
        return read_records(group.data, group.sections, first, end)
    except UnreadableRecords as error:
        return str(error)


def _cut_group(group: _Group, wanted: slice) -> _Group:
    """Return some of the batches with their own part of the bytes."""
    start, end = int(group.sections.start[wanted][0]), int(group.sections.end[wanted][-1])
    return _Group(memoryview(group.data)[start:end], group.sections.cut(wanted))


def _clip(found: UnreadableBatch, first: int, end: int) -> UnreadableBatch:
    """Leave out the offsets that were not asked for: another task has them."""
    return attrs.evolve(found, first=max(found.first, first), last=min(found.last, end - 1))
