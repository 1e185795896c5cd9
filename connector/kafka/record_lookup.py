"""References (topic, partition, offset) -> the records themselves, a few at a time. On the driver.

For what a batch must not carry along: samples before the stream starts, and the bytes of dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from connector.errors import FatalError, RetriableError
from connector.kafka.admin import client_config, map_kafka_errors
from connector.runtime.topic_partitions import TopicPartition as TopicPartitionKey
from connector.settings import KafkaSettings

LOOKUP_TIMEOUT_S = 30.0


class RecordReader:
    """Reads single records by place; joins no group and commits nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily.

        Args:
            settings: where the cluster is.
        """
        self._consumer = Consumer(
            {
                "isolation.level": "read_committed",
                **client_config(settings, "consumer"),
                "group.id": f"{settings.group_id}-records",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                # A fetch that finds nothing tells the end of a topic-partition; the broker waits so long for more.
                "fetch.wait.max.ms": _EMPTY_FETCH_MS,
            }
        )

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read_from(
        self, starts: Mapping[TopicPartitionKey, int], count: int, most_bytes: int | None = None
    ) -> dict[TopicPartitionKey, list[Message]]:
        """Return up to `count` records of each topic-partition from its offset on; fewer where it ends.

        With `most_bytes`, no more once those of a topic-partition are together so large.

        Cost: all topic-partitions are read at the same time, in one assignment.

        Raises:
            RetriableError: the broker is away.
        """
        found: dict[TopicPartitionKey, list[Message]] = {at: [] for at in starts}
        waiting = set(starts)
        with map_kafka_errors("reading single records"):
            self._consumer.assign([TopicPartition(topic, partition, o) for (topic, partition), o in starts.items()])
            deadline = time.monotonic() + LOOKUP_TIMEOUT_S
            while waiting:
                for message in self._poll():
                    self._collect(message, found, waiting, count, most_bytes)
                if time.monotonic() > deadline:
                    raise RetriableError(f"reading single records: no answer from {len(waiting)} topic-partitions")
            # A partition stays paused when it is assigned anew.
            self._consumer.resume([TopicPartition(*at) for at in starts])
            self._consumer.unassign()
        return found

    def read_exactly(self, at: TopicPartitionKey, offsets: Iterable[int]) -> Iterator[Message]:
        """Return the records at these ascending offsets.

        Raises:
            FatalError: one of them is gone from the topic.
        """
        for offset in offsets:
            found = self.read_from({at: offset}, 1)[at]
            if not found or found[0].offset() != offset:
                raise FatalError(f"{at[0]}-{at[1]} offset {offset} is no longer in the topic: retention was faster")
            yield found[0]

    def _poll(self) -> list[Message]:
        """Wait for a message, and return it with those that are here too: `consume` waits for as many as it is told."""
        first = self._consumer.poll(_POLL_S)
        return [] if first is None else [first, *self._consumer.consume(_POLL_RECORDS, 0)]

    def _collect(
        self,
        message: Message,
        found: dict[TopicPartitionKey, list[Message]],
        waiting: set[TopicPartitionKey],
        count: int,
        most_bytes: int | None,
    ) -> None:
        at = (message.topic(), message.partition())
        error = message.error()
        if error is not None and error.code() != _PARTITION_EOF:
            if not error.retriable():
                raise FatalError(f"reading {at[0]}-{at[1]}: {error.str()}")
            return
        if at not in waiting:
            return
        if error is None:
            found[at].append(message)
        full = most_bytes is not None and sum(map(len, found[at])) >= most_bytes
        if error is not None or full or len(found[at]) == count:
            waiting.discard(at)
            self._consumer.pause([TopicPartition(*at)])


_POLL_RECORDS, _POLL_S = 500, 0.2
_EMPTY_FETCH_MS = 10
_PARTITION_EOF = -191
