"""Topics of the simulated sources -> what a cluster answers: ids, partitions, oldest and next offsets, records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from connector.errors import GapError
from connector.kafka.admin import KafkaAdmin, TopicInfo
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.topic_partitions import TopicPartition
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from tests.simulation.answers import Answers
from tests.simulation.interruptions import Interruptions, broker_away
from tests.simulation.source import Source, Truth

RUNS = Answers()
FIRST_RECORD_MS = 1_700_000_000_000
"""When the first record of each topic came."""


@attrs.define(eq=False)
class Topic:
    """A topic: `gone` are offsets that compaction took, below `beginnings` retention took all."""

    source: Source
    id: str
    beginnings: dict[int, int] = attrs.field(factory=dict)
    gone: set[tuple[int, int]] = attrs.field(factory=set)
    _lanes: dict[int, list[int]] = attrs.field(factory=dict)
    _seen: int = 0
    _there: dict[int, tuple[tuple[int, int, int], dict[int, Truth]]] = attrs.field(factory=dict)

    def places(self, partition: int) -> list[int]:
        """The places of a partition's records in the source's log; the place in the list is the offset."""
        for place in range(self._seen, len(self.source.log)):
            self._lanes.setdefault(self.source.log[place].partition, []).append(place)
        self._seen = len(self.source.log)
        return self._lanes.get(partition, [])

    def end(self, partition: int) -> int:
        return len(self.places(partition))

    def ends_of_transactions(self) -> list[dict[int, int]]:
        """Where batches may end that take whole transactions: the ends of all partitions, from the first to the last.

        A connector may end between any two records, but what it had begun it sends again from there on.
        """
        truths, ends = self.source.truth, [dict.fromkeys(range(self.source.partitions), 0)]
        now = dict(ends[0])
        for place, record in enumerate(self.source.log):
            now[record.partition] += 1
            following = truths[place + 1] if place + 1 < len(truths) else None
            own = truths[place]
            if (
                following is None
                or (following.transaction, following.says) != (own.transaction, own.says)
                or following.serial < own.serial
            ):
                ends.append(dict(now))
        return ends

    def beginning(self, partition: int) -> int:
        return self.beginnings.get(partition, 0)

    def begins_bare(self, partition: int, offset: int) -> bool:
        """Tell whether there is a tombstone at an offset, which is without its delete where that is the oldest."""
        places = self.places(partition)
        return offset < len(places) and self.source.truth[places[offset]].tombstone

    def truths(self, partition: int, start: int, end: int) -> dict[int, Truth]:
        """What the records in a range say that are there, by offset."""
        places = self.places(partition)
        first = max(start, self.beginning(partition))
        return {
            offset: self.source.truth[places[offset]]
            for offset in range(first, min(end, len(places)))
            if (partition, offset) not in self.gone
        }

    def all_truths(self, partition: int) -> Mapping[int, Truth]:
        """What all records of a partition say that are there, by offset; found again where any came or went."""
        now = len(self.places(partition)), self.beginning(partition), len(self.gone)
        known, found = self._there.get(partition, ((), {}))
        if known != now:
            found = self.truths(partition, 0, now[0])
            self._there[partition] = now, found
        return found

    def compact(self) -> None:
        """Keep the newest record of each key in each partition; records without key stay."""
        for partition in range(self.source.partitions):
            last = {self.source.log[place].key: offset for offset, place in enumerate(self.places(partition))}
            for offset, place in enumerate(self.places(partition)):
                key = self.source.log[place].key
                if key is not None and last[key] != offset:
                    self.gone.add((partition, offset))


@attrs.define(eq=False)
class Broker:
    """The cluster."""

    topics: dict[str, Topic]
    cluster_id: str = "cluster-1"

    def info(self, name: str) -> TopicInfo:
        topic = self.topics[name]
        return TopicInfo(name, topic.id, topic.source.partitions)

    def partitions(self) -> list[TopicPartition]:
        return [(name, p) for name, topic in sorted(self.topics.items()) for p in range(topic.source.partitions)]

    def read(self, at: TopicPartition, start: int, end: int) -> ConsumerRecords:
        """The records of a range.

        Raises:
            GapError: its first ones are gone, or it never got that far.
        """
        name, partition = at
        topic = self.topics[name]
        if start < topic.beginning(partition) or end > topic.end(partition):
            raise GapError(f"{name}-{partition}: offsets {start} to {end} are not there any more")
        places = topic.places(partition)
        offsets = [offset for offset in range(start, end) if (partition, offset) not in topic.gone]
        records = [topic.source.log[places[offset]] for offset in offsets]
        told = [topic.source.headers[places[offset]] or ("", None) for offset in offsets]
        what = tuple((one.key, one.value, *header) for one, header in zip(records, told, strict=True))
        question = name, partition, tuple(offsets), what
        return RUNS.of(question, lambda: _to_run(name, partition, offsets, what))


def _to_run(
    name: str, partition: int, offsets: Sequence[int], what: Sequence[tuple[bytes | None, bytes | None, str, Any]]
) -> ConsumerRecords:
    """Records as columns: keys, values, and the headers that tell of changed keys."""
    keys, values = (pa.array([one[side] for one in what], pa.binary()) for side in (0, 1))
    headers = {
        wanted: pa.array([value if header == wanted else None for *_, header, value in what], pa.binary())
        for wanted in (OLD_KEY_HEADER, NEW_KEY_HEADER)
    }
    return ConsumerRecords(name, partition, np.array(offsets, np.int64), keys, values, headers=headers)


class SimulatedCluster(KafkaAdmin):
    """The cluster as one process asks it."""

    def __init__(self, broker: Broker, calls: Interruptions) -> None:
        self._broker, self._calls = broker, calls

    def id(self) -> str:
        return self._ask("cluster id", lambda: self._broker.cluster_id)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        wanted = [name for name in names if name in self._broker.topics]
        return self._ask("topics", lambda: {name: self._broker.info(name) for name in wanted}) if wanted else {}

    def select_topics(self) -> dict[str, TopicInfo]:
        return self._ask("topics", lambda: {name: self._broker.info(name) for name in sorted(self._broker.topics)})

    def fetch_beginning_offsets(self, at: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        topics = self._broker.topics
        return self._ask("oldest offsets", lambda: {(name, p): topics[name].beginning(p) for name, p in at})

    def fetch_end_offsets(self, at: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        topics = self._broker.topics
        return self._ask("next offsets", lambda: {(name, p): topics[name].end(p) for name, p in at})

    def fetch_log_ends(self, at: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offsets: there are no open transactions."""
        topics, what = self._broker.topics, "ask for where logs end"
        return self._calls.ask(what, lambda: {(name, p): topics[name].end(p) for name, p in at}, broker_away)

    def fetch_offsets_from_time(self, at: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        """The record at a place of the source's log has that many milliseconds more than the first one."""
        return self._calls.ask("ask for offsets by time", lambda: self._find_from_time(at, ts_ms), broker_away)

    def _find_from_time(self, at: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        found = {}
        for name, p in at:
            places = self._broker.topics[name].places(p)
            offset = bisect_left(places, ts_ms - FIRST_RECORD_MS)
            if offset < len(places):
                found[name, p] = offset
        return found

    def _ask(self, what: str, do: Callable[[], Any]) -> Any:
        return self._calls.call(f"ask for {what}", do, broker_away)
