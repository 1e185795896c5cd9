"""records and a consumer group -> how far the group's commits are behind what matters of the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.model.recordings import Record

_CALL_S = 10.0
Partition = tuple[str, int]


@contextmanager
def observer(bootstrap_servers: str, group: str) -> Iterator[Consumer]:
    """A client that may ask for the group's commits; it never joins the group, nor commits for it."""
    client = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    try:
        yield client
    finally:
        client.close()


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


def lag(group: Consumer, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
    """How many offsets the group's commits are behind, for the partitions where they are."""
    left = {where: end - done for (where, end), done in zip(wanted.items(), _committed(group, wanted), strict=True)}
    return {where: behind for where, behind in left.items() if behind > 0}


def _committed(group: Consumer, wanted: Iterable[Partition]) -> list[int]:
    """The group's offset of each partition; 0 where it has none yet, or no coordinator to ask."""
    asked = [TopicPartition(*where) for where in wanted]
    try:
        answers = {(p.topic, p.partition): p.offset for p in group.committed(asked, timeout=_CALL_S)} if asked else {}
    except KafkaException:
        answers = {}
    # Where nothing is committed the client gives a negative offset.
    return [max(answers.get((p.topic, p.partition), 0), 0) for p in asked]
