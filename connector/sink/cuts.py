"""A range of offsets -> batches of at most so many bytes, by what events weighed lately (pure).

Kafka tells offsets, not bytes, before records are read: a batch's size is a guess that follows the events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from connector.iceberg.position import TopicPartition

EVENT_BYTES = 1_000
"""What an event is taken to weigh before any was seen."""

_FADING = 0.5
"""How much the batches before count beside the last one."""


class Cuts:
    """Cuts ranges into batches; it learns the size of events from each."""

    def __init__(self, max_bytes: int) -> None:
        """Begin with events of `EVENT_BYTES`."""
        self._max_bytes = max_bytes
        self._events, self._bytes = 1.0, float(EVENT_BYTES)

    def end(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Give where the next batch ends: at `end`, or before it, with the same share of every topic-partition."""
        spans = {at: last - start.get(at, 0) for at, last in end.items()}
        most = max(1.0, self._max_bytes * self._events / self._bytes)
        total = sum(spans.values())
        if total <= most:
            return dict(end)
        return {at: start.get(at, 0) + math.ceil(span * most / total) for at, span in spans.items()}

    def note(self, events: int, size_bytes: int) -> None:
        """Take note of a batch that was read."""
        if events and size_bytes:
            self._events = self._events * _FADING + events
            self._bytes = self._bytes * _FADING + size_bytes
