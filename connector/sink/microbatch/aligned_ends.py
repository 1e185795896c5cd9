"""The batch of a topic that has grown -> the same up to one moment in all of its partitions. On the driver.

Where partitions were added, keys moved from one to another, and Kafka orders no partitions: a batch may have a change
from the key's new partition and lack earlier ones that the old one still holds. What such an update left out would be
taken from a row that is too old, and nothing told later that it was. The times of records say what came first: a batch
that leaves something of the topic for later ends before the first of that, in all partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import attrs

from connector.runtime.topic_partitions import TopicPartition
from connector.sink.fold.watermarks import GROWN_PARTITION
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.events.positions.log_positions import NO_VALUE, strip_log_name

_FIRST_STEP_MS, _STEPS_GROW = 1_000, 4
_NEARLY_ALL = 16
"""A batch that lacks no more than one of so many events is not looked for a later end: each look asks the cluster."""
_AHEAD_MS = 3_600_000
"""A record from so long after now has no true time; since Kafka 4 brokers take such ones only if they are told to."""

Offsets = Mapping[TopicPartition, int]


class PartitionTimes(Protocol):
    """What a cluster knows of its partitions."""

    def fetch_log_ends(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each, behind open transactions too."""
        ...

    def fetch_offsets_from_time(self, at: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        """Return the first offset of each whose record has this time or a later one; none without one."""
        ...


@attrs.define
class TopicGrowth:
    """Aligns the batches of one sink, of at most so many events.

    `_settled` are topics that have not grown, as long as partitions and known tables are the same.
    """

    _max_events: int
    _known: tuple[frozenset[TopicPartition], frozenset[str]] | None = None
    _settled: set[str] = attrs.field(factory=set)

    def align(
        self,
        batch: MicroBatch,
        plan: Callable[[MicroBatch], BatchPlan],
        cluster: PartitionTimes,
        tables: Iterable[str] = (),
    ) -> MicroBatch:
        """Return a batch that ends at one moment in all partitions of each topic that has grown.

        Args:
            batch: what there is to be read.
            plan: plans the job of a batch.
            cluster: where the topics are.
            tables: those that are known: what events name themselves is met only then, and may be behind its topic.

        Raises:
            RetriableError: the cluster is away, or a catalog.
        """
        known = frozenset(batch.end), frozenset(tables)
        if known != self._known:
            self._known, self._settled = known, set()
        topics = set(batch.topics)
        if topics <= self._settled:
            return batch
        grown = find_grown_topics(plan(batch))
        self._settled |= topics - grown
        return align_ends(batch, grown, cluster, self._max_events)


def find_grown_topics(plan: BatchPlan) -> set[str]:
    """Return the topics that got partitions, and of which not all is read from before their keys moved."""
    topics = {topic for topic, _ in plan.ranks}
    return {topic for topic in topics for table in plan.tables if _is_behind(plan, topic, table)}


def _is_behind(plan: BatchPlan, topic: str, table: TablePlan) -> bool:
    """Tell whether of some source it is not known how far it had come when its keys moved (`fold.grown_topics`).

    MySQL's snapshots name another log than its changes: that one has no changes, and its source is known by the other.
    """
    if plan.has_grown(topic, table):
        return True
    limits = table.watermarks.get((topic, GROWN_PARTITION))
    if limits is None:
        return False
    settled = {strip_log_name(name) for name in limits}
    marks = [
        item for at, own in table.watermarks.items() if at[0] == topic for item in own.items() if item[0] not in limits
    ]
    return any(mark.date != NO_VALUE or mark.place or strip_log_name(name) not in settled for name, mark in marks)


def align_ends(batch: MicroBatch, topics: Collection[str], cluster: PartitionTimes, max_events: int) -> MicroBatch:
    """Return a batch that ends at one moment in all partitions of each of some topics; others stay as they are.

    What is cut off comes with a later batch: Spark goes on, so that the ends of the next one are further, or all there
    is. A partition that is past the moment stays where it is. Where more records are of one moment than a batch may
    have (`max_events`), nothing is cut off; where that many wait for another partition, of which Spark has yet to give
    the next records, they wait on. A partition that has a record from the future stays as it is: by that time all
    behind the record would have to wait until then.

    Raises:
        RetriableError: the cluster is away.
    """
    end = dict(batch.end)
    for topic in sorted({*topics} & {*batch.topics}):
        end |= _align_topic(batch, topic, cluster, max_events)
    return attrs.evolve(batch, end=end)


def _align_topic(batch: MicroBatch, topic: str, cluster: PartitionTimes, max_events: int) -> Offsets:
    """Return the ends of one topic's partitions."""
    asked = {at: offset for at, offset in batch.end.items() if at[0] == topic}
    there = cluster.fetch_log_ends(sorted(asked))
    if all(asked[at] >= offset for at, offset in there.items()):
        return asked

    def find(ms: int) -> Offsets:
        return {**there, **cluster.fetch_offsets_from_time(sorted(there), ms)}

    now_ms = time.time_ns() // 1_000_000
    future = find(now_ms + _AHEAD_MS)
    told = {at: offset for at, offset in asked.items() if future[at] >= there[at]}
    if all(offset >= there[at] for at, offset in told.items()):
        return asked
    common = find_common_end(batch.start, told, find, now_ms)
    aligned = {**asked, **common.ends}
    of_one_moment = {at: told[at] for at in common.holding}
    if not attrs.evolve(batch, end=aligned).events and attrs.evolve(batch, end=of_one_moment).events >= max_events:
        return {**aligned, **of_one_moment}
    return aligned


@attrs.frozen
class CommonEnd:
    """The latest ends that are of one moment, and the partitions that have more of it, all where nobody knows."""

    ends: Offsets
    holding: Collection[TopicPartition]


def find_common_end(start: Offsets, asked: Offsets, find: Callable[[int], Offsets], now_ms: int) -> CommonEnd:
    """Return ends that are of one moment, none of them behind those asked for: the latest, or nearly so.

    `find` gives the first offset of each partition that is of a moment or later.

    Cost: a dozen questions for offsets, and as many more for what is a day old.
    """

    def cut(ends: Offsets) -> dict[TopicPartition, int]:
        return {at: max(start.get(at, 0), min(offset, ends[at])) for at, offset in asked.items()}

    def count(ends: Offsets) -> int:
        return sum(end - start.get(at, 0) for at, end in cut(ends).items())

    def find_beyond(ends: Offsets) -> list[TopicPartition]:
        return [at for at, offset in asked.items() if ends[at] > max(offset, start.get(at, 0))]

    early, late, step = now_ms, now_ms, _FIRST_STEP_MS
    later = ends = find(early)
    while find_beyond(ends):
        if not early:
            return CommonEnd(asked, asked.keys())  # of records without times
        late, early, step, later = early, max(0, early - step), step * _STEPS_GROW, ends
        ends = find(early)
    while late - early > 1 and not (count(later) - count(ends)) * _NEARLY_ALL < count(ends):
        middle = (early + late) // 2
        between = find(middle)
        if find_beyond(between):
            late, later = middle, between
        else:
            early, ends = middle, between
    return CommonEnd(cut(ends), find_beyond(later) or asked.keys())
