"""What reading cost a task -> figures for its metrics: fetches, bytes, waits, retries."""

from __future__ import annotations

import attrs

from connector.runtime.monitoring.metrics import FetchMetrics
from connector.runtime.topic_partitions import TopicPartition


@attrs.define
class FetchMeter:
    """Counts of one task; see `FetchMetrics`."""

    fetches: int = 0
    size_bytes: int = 0
    throttle_ms: int = 0
    retries: int = 0
    wait_s: float = 0.0
    readers: set[str] = attrs.field(factory=set)
    epochs: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)

    def note_epoch(self, at: TopicPartition, last: int, epoch: int) -> None:
        """Note the leader epoch of the record at offset `last`; unknown ones are not kept."""
        if epoch >= 0:
            self.epochs[at] = max(self.epochs.get(at, (-1, -1)), (last, epoch))

    @property
    def metrics(self) -> FetchMetrics:
        """The figures so far."""
        return FetchMetrics(
            fetches=self.fetches,
            size_bytes=self.size_bytes,
            throttle_ms=self.throttle_ms,
            retries=self.retries,
            wait_ms=round(self.wait_s * 1000),
            readers=frozenset(self.readers),
            epochs=dict(self.epochs),
        )
