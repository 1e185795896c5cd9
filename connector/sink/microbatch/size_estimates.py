"""A range of offsets -> batches of at most so many bytes, by a look at its events and what they weighed lately (pure).

Kafka tells offsets, not bytes, before records are read: a batch's size is a guess. Small ranges are guessed by the
batches before; of large ones, and of a process's first, a few events are looked at, spread evenly over the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from connector.runtime.topic_partitions import TopicPartition
from serde.arrays import Ints

UNSEEN_EVENT_BYTES = 64_000
"""What an event is taken to weigh where none was seen, nor can be: librdkafka shows no sizes before it reads."""

SAMPLES_PER_PARTITION, SAMPLED_PARTITIONS = 9, 8
"""At how many events of a topic-partition is looked, and at how many topic-partitions: those with most events."""

_DECAY = 0.5
"""How much the batches before count beside the last one."""

_SAFETY_FACTOR = 10.0
"""How much larger than those before events may be without a look."""

Offsets = Mapping[TopicPartition, int]
SizeSampler = Callable[[Mapping[TopicPartition, Sequence[int]]], Mapping[TopicPartition, Sequence[float]]]
"""Offsets -> bytes per offset there, of the topic-partitions that tell."""


class ByteLimit:
    """Cuts ranges into batches; it learns the size of events from each."""

    def __init__(self, max_bytes: int, look: SizeSampler = lambda _: {}) -> None:
        """Begin with events of `UNSEEN_EVENT_BYTES`, until others are seen."""
        self._max_bytes, self._look = max_bytes, look
        self._events, self._bytes = 1.0, float(UNSEEN_EVENT_BYTES)
        self._noted = False

    def end(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Return where the next batch ends: at `end`, or before it, with the same share of every topic-partition."""
        spans = {at: last - start.get(at, 0) for at, last in end.items()}
        share = self._share(start, spans)
        if share >= 1:
            return dict(end)
        cut = {at: start.get(at, 0) + int(span * share) for at, span in spans.items()}
        if all(offset == start.get(at, 0) for at, offset in cut.items()):
            # An event that is larger than a batch may be is a batch of its own.
            first = next(at for at, span in spans.items() if span)
            cut[first] += 1
        return cut

    def note(self, events: int, size_bytes: int) -> None:
        """Take note of a batch that was read."""
        if events and size_bytes:
            kept = _DECAY if self._noted else 0.0
            self._events = self._events * kept + events
            self._bytes = self._bytes * kept + size_bytes
            self._noted = True

    def _share(self, start: Offsets, spans: Offsets) -> float:
        total = sum(spans.values())
        if not total:
            return 1.0
        guess = total * self._bytes / self._events
        if self._noted and guess * _SAFETY_FACTOR <= self._max_bytes:
            return 1.0
        places = {at: _spread_offsets(start.get(at, 0), spans[at]) for at in _find_largest(spans)}
        sizes_at = {
            at: sizes for at, sizes in self._look({at: p.tolist() for at, p in places.items()}).items() if sizes
        }
        if not sizes_at:
            return self._max_bytes / guess
        return _fit_share({at: places[at] for at in sizes_at}, sizes_at, total, self._max_bytes)


def _find_largest(spans: Offsets) -> list[TopicPartition]:
    filled = [at for at, span in spans.items() if span]
    return sorted(filled, key=lambda at: (-spans[at], at))[:SAMPLED_PARTITIONS]


def _spread_offsets(start: int, span: int) -> Ints:
    """Return evenly spread offsets of a range, its first and last among them."""
    return np.linspace(start, start + span - 1, SAMPLES_PER_PARTITION).astype(np.int64)


def _fit_share(
    places: Mapping[TopicPartition, Ints],
    sizes_at: Mapping[TopicPartition, Sequence[float]],
    total: int,
    max_bytes: int,
) -> float:
    """Return the share of the range that holds so many bytes; between two samples events are as large as the larger."""
    steps = np.zeros(SAMPLES_PER_PARTITION - 1)
    looked_at = 0
    for at, sizes in sizes_at.items():
        span = int(places[at][-1] - places[at][0]) + 1
        steps += np.maximum(sizes[:-1], sizes[1:]) * span / len(steps)
        looked_at += span
    # What was not looked at is taken to be like the rest.
    reached = np.concatenate([[0.0], np.cumsum(steps * total / looked_at)])
    if reached[-1] <= max_bytes:
        return 1.0
    return float(np.interp(max_bytes, reached, np.linspace(0, 1, SAMPLES_PER_PARTITION)))
