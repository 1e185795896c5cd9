"""Outputs of map tasks -> slots of the shuffle -> the outputs of a reduce task, bucket by bucket.

A reduce task takes its slots one after the other, and holds one of them in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter, itemgetter

import attrs

from connector.sink.model.plan import BatchPlan
from connector.sink.model.task_output import TaskOutput

MAX_DEPTH = 16
"""Slots of a reduce task at most: each is a block of every map task. Where there are more buckets some share one."""

_SLOT, _BUCKET = itemgetter(0), attrgetter("table", "bucket")


@attrs.frozen
class ShuffleSlots:
    """The slots of a job: `depth` in a row for each of its `reducers`, over which a table's buckets spread in turn."""

    reducers: int
    depth: int

    @staticmethod
    def of(plan: BatchPlan) -> ShuffleSlots:
        """Return as many as the largest number of buckets asks for."""
        buckets = max(table.index + table.buckets for table in plan.tables)
        return ShuffleSlots(plan.reducers, min(MAX_DEPTH, -(-buckets // plan.reducers)))

    @property
    def count(self) -> int:
        """How many slots there are."""
        return self.reducers * self.depth

    def key(self, output: TaskOutput) -> tuple[int, TaskOutput]:
        """Return an output with the slot of its bucket before it."""
        turn, reducer = divmod(output.bucket + output.table, self.reducers)
        return reducer * self.depth + turn % self.depth, output

    def sort(self, outputs: Iterable[tuple[int, TaskOutput]]) -> Iterator[TaskOutput]:
        """Return outputs that come slot by slot so that those of a bucket are in a row."""
        for _, own in groupby(outputs, key=_SLOT):
            yield from sorted((output for _, output in own), key=_BUCKET)
