"""References (topic, partition, offset) -> the records themselves, a few at a time. On the driver.

For what a batch must not carry along: samples before the stream starts, and the bytes of dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, Message, TopicPartition

from connector.errors import FatalError, RetriableError
from connector.kafka.cluster import At, configuration, mapped
from connector.settings import KafkaSettings

TIMEOUT_S = 30.0


class Records:
    """Reads single records by place; joins no group and commits nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily.

        Args:
            settings: where the cluster is.
        """
        self._consumer = Consumer(
            {
                "isolation.level": "read_committed",
                **configuration(settings, "consumer"),
                "group.id": f"{settings.group_id}-records",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            }
        )

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def first(self, at: At, offset: int, count: int) -> list[Message]:
        """Give up to `count` records from `offset` on; fewer at the end of the partition."""
        return list(self._from(at, offset, count))

    def exactly(self, at: At, offsets: Iterable[int]) -> Iterator[Message]:
        """Give the records at these ascending offsets.

        Raises:
            FatalError: one of them is gone from the topic.
        """
        for offset in offsets:
            found = self.first(at, offset, 1)
            if not found or found[0].offset() != offset:
                raise FatalError(f"{at[0]}-{at[1]} offset {offset} is no longer in the topic: retention was faster")
            yield found[0]

    def _from(self, at: At, offset: int, count: int) -> Iterator[Message]:
        with mapped(f"reading {at[0]}-{at[1]} from offset {offset}"):
            self._consumer.assign([TopicPartition(at[0], at[1], offset)])
            given, deadline = 0, time.monotonic() + TIMEOUT_S
            while given < count:
                message = self._consumer.poll(1.0)
                if message is None:
                    if time.monotonic() > deadline:
                        raise RetriableError(f"reading {at[0]}-{at[1]} from offset {offset}: no answer")
                elif message.error() is None:
                    given += 1
                    yield message
                elif message.error().code() == _EOF:
                    return
                elif not message.error().retriable():
                    raise FatalError(f"reading {at[0]}-{at[1]} from offset {offset}: {message.error().str()}")


_EOF = -191
