"""Small runs of one topic -> one run, whose messages are read at once -> each run's own messages and keys. Pure.

Reading costs some milliseconds whatever it is given, and a batch of a topic of many partitions has a small run of each.
What a message becomes does not depend on those beside it, so runs may be read together; all else is of each run:
offsets, watermarks, faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.record_keys import RecordKeys
from serde.faults import RecordError
from serde.messages import DecodedMessages, MessageBlock

SMALL_BYTES, JOINT_BYTES = 1 << 20, 4 << 20
"""Keys and values of a run that does not cover what reading it alone costs, and of runs that are read at once."""


def gather_small(runs: Iterable[ConsumerRecords]) -> Iterator[list[ConsumerRecords]]:
    """Yield runs in their order: small ones of a topic together, others alone.

    A small run is copied: it may be a small piece of what was fetched, which would stay in memory with it.
    """
    waiting: list[ConsumerRecords] = []
    size_bytes = 0
    for run in runs:
        small = run.unreadable is None and run.size_bytes <= SMALL_BYTES
        if waiting and not (small and _goes_with(waiting[0], run) and size_bytes + run.size_bytes <= JOINT_BYTES):
            yield waiting
            waiting, size_bytes = [], 0
        if not small:
            yield [run]
            continue
        size_bytes += run.size_bytes
        waiting.append(run.only(np.arange(len(run.offset))))
    if waiting:
        yield waiting


def _goes_with(one: ConsumerRecords, other: ConsumerRecords) -> bool:
    """Tell whether messages are read alike: the topic, and the connector that wrote them, decide."""
    types = (one.key.type, one.value.type) == (other.key.type, other.value.type)
    return one.topic == other.topic and one.connector == other.connector and types


def join_runs(runs: Sequence[ConsumerRecords]) -> ConsumerRecords:
    """Return the keys and values of runs end to end, as a run of the first one's topic-partition."""
    return ConsumerRecords(
        *runs[0].at,
        np.concatenate([run.offset for run in runs]),
        pa.concat_arrays([run.key for run in runs]),
        pa.concat_arrays([run.value for run in runs]),
        connector=runs[0].connector,
    )


def slice_messages(messages: DecodedMessages, start: int, stop: int) -> DecodedMessages:
    """Return what was decoded of the rows from `start` up to, not including, `stop`, as of a run of their own."""
    first, last = np.searchsorted(messages.tombstones, [start, stop])
    return DecodedMessages(
        tuple(_slice_blocks(messages.blocks, start, stop)),
        messages.tombstones[first:last] - start,
        _slice_faults(messages.faults, start, stop),
    )


def slice_keys(keys: RecordKeys, start: int, stop: int) -> RecordKeys:
    """Return the keys of those rows, as of a run of their own."""
    return RecordKeys(
        {name: column.slice(start, stop - start) for name, column in keys.columns.items()},
        keys.usable[start:stop],
        _slice_faults(keys.faults, start, stop),
        {name: rows[start:stop] for name, rows in keys.declared.items()},
    )


def _slice_blocks(blocks: Iterable[MessageBlock], start: int, stop: int) -> Iterator[MessageBlock]:
    for block in blocks:
        first, last = np.searchsorted(block.rows, [start, stop])
        if last > first:
            fields = block.fields.slice(first, last - first)
            yield attrs.evolve(block, rows=block.rows[first:last] - start, fields=fields)


def _slice_faults(faults: Iterable[RecordError], start: int, stop: int) -> tuple[RecordError, ...]:
    return tuple(attrs.evolve(fault, row=fault.row - start) for fault in faults if start <= fault.row < stop)
