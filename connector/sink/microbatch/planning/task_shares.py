"""A batch's offsets, and the batches before -> about how many events each table will have (pure).

It decides into how many parts a table's keys are split, so it need not be exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import FieldRoutes


class TableShares:
    """Remembers which part of the last batch each table had, for events that name their tables themselves."""

    def __init__(self) -> None:
        """Start with nothing known: then tables share alike."""
        self._of: dict[str, float] = {}

    def note(self, names: Sequence[str], metrics: TaskMetrics) -> None:
        """Take note of a batch that went through; `names` are its tables by index."""
        self._of.update((name, metrics.rows[i] / max(1, metrics.events)) for i, name in enumerate(names))

    def estimate(
        self, batch: MicroBatch, names: Sequence[str], routes: Mapping[str, int], routing: FieldRoutes | None
    ) -> list[float]:
        """Return the events of each table, by index: from its topics' offsets, else as in the batch before."""
        if routing is None:
            events = [0.0] * len(names)
            for topic, index in routes.items():
                events[index] += batch.events_of(topic)
            return events
        alike = 1.0 if routing.whole else 1 / max(1, len(names))
        return [batch.events * self._of.get(name, alike) for name in names]
