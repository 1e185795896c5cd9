"""Stored positions + the cluster -> where to read on: Iceberg decides, never a checkpoint.

The pure rule is `find_starting_offsets`; what it stops on is never skipped and never replayed silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from connector.errors import GapError
from connector.iceberg.commit.commit_summary import LOST_COMMIT_REMEDY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.admin import TopicInfo
from connector.runtime.topic_partitions import TopicPartition, is_other_topic

_REMEDY = "see `icebridge offsets show`, and `icebridge offsets reset` to start again from what is there"


@attrs.frozen
class ClusterState:
    """The cluster as it is: its id, the selected topics, and the oldest and next offset of each topic-partition.

    `ends` are where a sink can read up to, `log_ends` where the logs end: behind transactions that are open.
    """

    cluster_id: str
    topics: Mapping[str, TopicInfo]
    beginnings: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    log_ends: Mapping[TopicPartition, int] = attrs.field(factory=dict)


def find_starting_offsets(
    stored: KafkaOffsets | None,
    tables: Mapping[str, KafkaOffsets],
    noted: Mapping[str, KafkaOffsets],
    cluster_state: ClusterState,
    reset: str,
    named: Iterable[str] = (),
) -> KafkaOffsets:
    """Return the position to read on from, for every topic-partition that is selected.

    What appeared after the first start is read from its beginning, as it would have been by a sink that ran. `reset`
    holds at the first start, and for a topic that is listed by name since, which the position then knows: by its id, or
    without one as long as it does not exist.

    Args:
        stored: the connector's position in the offsets table, None when there is none.
        tables: what the newest snapshot of each table says (full names).
        noted: what the offsets table says of each table.
        cluster_state: the cluster now.
        reset: `earliest` or `latest`.
        named: the topics that are listed by name.

    Raises:
        GapError: the stored position belongs to another cluster or topic, or points outside of what the topic holds,
            or table and offsets table contradict each other; or a partition has lost records that nobody has read.
    """
    _check_tables(tables, noted)
    known = stored if stored is not None else _merge_lowest(tables.values())
    _check_identity(known, cluster_state)
    waited = dict.fromkeys(named, "")
    later = set(known.topic_ids) | {topic for topic, _ in known.offsets}
    if stored is not None or known.offsets:
        later |= cluster_state.topics.keys() - waited.keys()
    fresh = {
        at: end if reset == "latest" and at[0] not in later else cluster_state.beginnings[at]
        for at, end in cluster_state.ends.items()
    }
    _check_range(known, cluster_state)
    check_appeared(known, {at: cluster_state.beginnings[at] for at in fresh.keys() - known.offsets.keys()})
    ids = {name: topic.id for name, topic in cluster_state.topics.items()}
    return KafkaOffsets(
        cluster_state.cluster_id, {**waited, **known.topic_ids, **ids}, {**fresh, **known.offsets}, epochs=known.epochs
    )


def keep_ends_behind(
    start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the ends that a batch from `start` can have (pure).

    With read_committed the cluster's are in front of an open transaction, of which more may have been read before, or
    been passed over: that part is left as it is.
    """
    return {at: max(end, start.get(at, end)) for at, end in ends.items()}


def _merge_lowest(positions: Iterable[KafkaOffsets]) -> KafkaOffsets:
    result = KafkaOffsets()
    for position in positions:
        low = {at: min(offset, result.offsets.get(at, offset)) for at, offset in position.offsets.items()}
        result = KafkaOffsets(
            position.cluster_id, {**result.topic_ids, **position.topic_ids}, {**result.offsets, **low}
        )
    return result


def _check_tables(tables: Mapping[str, KafkaOffsets], noted: Mapping[str, KafkaOffsets]) -> None:
    for name, position in tables.items():
        behind = position.behind(noted[name]) if position.offsets and name in noted else []
        if behind:
            topic, partition = behind[0]
            raise GapError(
                f"table {name} is at {position.offsets.get(behind[0], 0)} of {topic}-{partition} by its "
                f"newest snapshot, and at {noted[name].offsets[behind[0]]} by the offsets table: the table was "
                f"rolled back or replaced; {LOST_COMMIT_REMEDY}"
            )


def _check_identity(known: KafkaOffsets, cluster_state: ClusterState) -> None:
    if known.cluster_id and known.cluster_id != cluster_state.cluster_id:
        raise GapError(
            f"the stored offsets are of Kafka cluster {known.cluster_id}, this is {cluster_state.cluster_id}; {_REMEDY}"
        )
    for name, topic in cluster_state.topics.items():
        check_topic_id(topic, known.topic_ids.get(name, ""))


def check_topic_id(topic: TopicInfo, before: str) -> None:
    """Compare a topic with the id that it had before, empty where it was not there.

    Raises:
        GapError: it is another one by the same name.
    """
    if is_other_topic(before, topic.id):
        raise GapError(
            f"topic {topic.name} was deleted and made again (its id was {before}, now {topic.id}): the stored "
            f"offsets are of the old one; {_REMEDY}"
        )


def check_appeared(known: KafkaOffsets, beginnings: Mapping[TopicPartition, int]) -> None:
    """See that topic-partitions which have appeared still have their first records, where all of them are to be read.

    That is so of partitions that were added to a topic which is read, and of a topic that was waited for. Any other
    topic may have been there, and lost records, long before it was named or allowed.

    Raises:
        GapError: the first ones are gone.
    """
    read = {topic for topic, _ in known.offsets} | {topic for topic, own in known.topic_ids.items() if not own}
    for (topic, partition), first in sorted(beginnings.items()):
        if first and topic in read:
            raise GapError(
                f"{topic}-{partition} has appeared since the sink last looked, and begins at offset {first}: retention "
                "removed records before the sink read them; load what is missing in another way (a snapshot signal to "
                f"Debezium), then `icebridge offsets reset --to stored --execute` with --topic {topic} continues with "
                "what is there"
            )


def _check_range(known: KafkaOffsets, cluster_state: ClusterState) -> None:
    for at, offset in sorted(known.offsets.items()):
        place = f"{at[0]}-{at[1]}"
        end = cluster_state.log_ends.get(at, cluster_state.ends.get(at, offset))
        if offset > end:
            raise GapError(f"{place} ends at offset {end}, before the stored offset {offset}; {_REMEDY}")
        if at in cluster_state.beginnings and offset < cluster_state.beginnings[at]:
            raise GapError(
                f"{place} begins at offset {cluster_state.beginnings[at]}, after the stored offset {offset}: "
                f"retention removed records before the sink read them; {_REMEDY}"
            )
