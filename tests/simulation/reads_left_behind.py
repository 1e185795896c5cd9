"""Records in the order in which batches took them -> reads that the old partition of a key still held.

No consumer can order these against changes in the key's new partition (docs/guarantees.md): Kafka orders no partitions,
and a read tells neither a place nor a date that proves anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import attrs

from connector.runtime.topic_partitions import TopicPartition
from tests.simulation.source import Truth


@attrs.frozen
class LoneRead:
    """A read without a change of its key before it in its batch and partition; `batch` counts."""

    truth: Truth
    at: TopicPartition
    batch: int


@attrs.define(eq=False)
class ReadsLeftBehind:
    """Reads by key; of each change, by serial, when and where it was first taken."""

    lone: dict[int, list[LoneRead]] = attrs.field(factory=lambda: defaultdict(list))
    changes: dict[int, tuple[int, TopicPartition]] = attrs.field(factory=dict)
    batch: int = 0

    def copy(self) -> ReadsLeftBehind:
        """Return the same, to go back to."""
        lone = defaultdict(list, {key: list(reads) for key, reads in self.lone.items()})
        return ReadsLeftBehind(lone, dict(self.changes), self.batch)

    @property
    def counts(self) -> tuple[int, int]:
        """How much was taken in: another where anything came since."""
        return len(self.changes), sum(map(len, self.lone.values()))

    def begin_batch(self) -> None:
        """What is taken from now on is of another batch."""
        self.batch += 1

    def take(self, at: TopicPartition, truths: Iterable[Truth]) -> None:
        """Take in what a batch has of a partition, in its order."""
        placed = set[int]()
        for truth in truths:
            if truth.says == "read" and truth.key not in placed:
                self.lone[truth.key].append(LoneRead(truth, at, self.batch))
            elif truth.says == "change":
                placed.add(truth.key)
                self.changes.setdefault(truth.serial, (self.batch, at))

    def rivals(self, last: Truth) -> Iterator[Truth]:
        """The reads that may stand although `last`, the last change of their key, came after them."""
        if last.says != "change" or last.serial not in self.changes:
            return
        batch, at = self.changes[last.serial]
        for read in self.lone.get(last.key, ()):
            if read.at != at and read.batch >= batch and read.truth.serial < last.serial:
                yield read.truth
