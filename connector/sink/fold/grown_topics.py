"""Topics that got partitions -> how far each source had come when its keys moved. Pure rules (docs/decisions/0024).

A key may have moved to a new partition: what its old one still holds is older than what the new one has, and a
restarted Debezium sends to the new one again what the old one has. The limit that changes must exceed to be certainly
not late is the watermark of all partitions at first. For each source it settles, as soon as all is read that the source
wrote before its keys moved: when the first event is read that it wrote to a new partition, all of that is in front of
the ends of the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connector.iceberg.commit.kafka_offsets import KafkaOffsets, Watermark, Watermarks
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.fold.watermarks import GROWN_PARTITION, merge_partitions
from serde.events.positions.log_positions import NO_VALUE

PARTITIONS_BEFORE = "#"
"""The entry under `GROWN_PARTITION` with the topic's earlier number of partitions (as a date).

Beside it is, by its name, how far each source had come whose keys have moved: changes older than that may have been
overtaken by changes of their key in its new partition. Until that is known, an entry of this and the source's name has
the ends that the logs of the earlier partitions had (as a place); nothing until these were asked for.
"""


def track_grown_topics(
    known: Watermarks,
    before: Mapping[str, int],
    now: KafkaOffsets,
    ends: Mapping[TopicPartition, int],
) -> Watermarks:
    """Return the changes to what is known about topics that got partitions.

    Args:
        known: the watermarks after a batch.
        before: how many partitions each topic had when the table was written to before.
        now: the offsets behind the batch.
        ends: those at the ends of the logs, asked for before the batch, of what `find_unmeasured_partitions` gave.
    """
    result = {}
    for topic, count in now.partitions.items():
        old = known.get((topic, GROWN_PARTITION))
        fresh = {PARTITIONS_BEFORE: Watermark(before[topic])} if 0 < before.get(topic, 0) < count else old
        if fresh is None:
            continue
        limits = dict(fresh)
        for name in _find_moving_sources(known, topic, fresh):
            limits.pop(PARTITIONS_BEFORE + name, None)
            limits |= _settle(known, topic, name, fresh, now.offsets, ends)
        if limits != old:
            result[topic, GROWN_PARTITION] = limits
    return result


def find_unmeasured_partitions(known: Watermarks) -> set[TopicPartition]:
    """Return the topic-partitions of which the ends are needed: a source's keys have moved away from them."""
    return {
        (topic, before)
        for (topic, partition), limits in known.items()
        if partition == GROWN_PARTITION
        and any(mark == Watermark() for name, mark in limits.items() if name.startswith(PARTITIONS_BEFORE))
        for before in range(limits[PARTITIONS_BEFORE].date)
    }


def _find_moving_sources(known: Watermarks, topic: str, limits: Mapping[str, Watermark]) -> Iterator[str]:
    """Return the sources that have written to a new partition, and have no limit yet."""
    first = limits[PARTITIONS_BEFORE].date
    fresh = [marks for (t, p), marks in known.items() if t == topic and p >= first]
    moving = {name for marks in fresh for name, mark in marks.items() if mark.date != NO_VALUE or mark.place}
    return (name for name in sorted(moving) if name not in limits)


def _settle(
    known: Watermarks,
    topic: str,
    name: str,
    limits: Mapping[str, Watermark],
    read: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[str, Watermark]:
    """Return a source's limit, or what is to be waited for until it is known."""
    waiting = PARTITIONS_BEFORE + name
    if waiting not in limits:
        return {waiting: Watermark()}
    earlier = [(topic, partition) for partition in range(limits[PARTITIONS_BEFORE].date)]
    reach = limits[waiting].place or (tuple(ends[at] for at in earlier) if ends.keys() >= set(earlier) else ())
    if reach and all(read.get(at, 0) >= end for at, end in zip(earlier, reach, strict=True)):
        return {name: merge_partitions(known, topic, name)}
    return {waiting: Watermark(NO_VALUE, reach)}
