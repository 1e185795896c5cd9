"""records and a consumer group -> how far the group's commits are behind what matters of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.model.recordings import Record

_CALL_S = 30.0
Partition = tuple[str, int]


def ends(records: Iterable[Record]) -> dict[Partition, int]:
    """The offset behind the last record with a value of every partition: what a group must reach.

    A tombstone says nothing that the delete before it has not said. ExtractNewRecordState drops it, and the JDBC sink
    commits only what reached it, so that a partition that ends in one keeps a lag of 1 for ever.
    """
    reached: dict[Partition, int] = {}
    for record in records:
        if record.value is not None:
            where = record.topic, record.partition
            reached[where] = max(reached.get(where, 0), record.offset + 1)
    return reached


def lag(bootstrap_servers: str, group: str, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
    """How many offsets the group's commits are behind, for the partitions where they are."""
    if not wanted:
        return {}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*where) for where in wanted])
    committed = admin.list_consumer_group_offsets([asked])[group].result(_CALL_S).topic_partitions
    # Where nothing is committed yet the client gives a negative offset.
    reached = {(p.topic, p.partition): max(p.offset, 0) for p in committed}
    left = {where: end - reached.get(where, 0) for where, end in wanted.items()}
    return {where: behind for where, behind in left.items() if behind > 0}
