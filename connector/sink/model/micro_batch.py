"""Start and end offsets -> how many events are between them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from connector.runtime.topic_partitions import TopicPartition


@attrs.frozen
class MicroBatch:
    """What to read: offsets of each topic-partition from `start`, 0 where it is new, up to, not including, `end`."""

    id: int
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @property
    def events(self) -> int:
        """How many offsets the batch spans; records are at most so many."""
        return sum(end - self.start.get(at, 0) for at, end in self.end.items())

    def events_of(self, topic: str) -> int:
        """How many of them are of one topic."""
        return sum(end - self.start.get(at, 0) for at, end in self.end.items() if at[0] == topic)

    @property
    def topics(self) -> list[str]:
        """Topics that may have records in this batch."""
        return sorted({at[0] for at, end in self.end.items() if end > self.start.get(at, 0)})
