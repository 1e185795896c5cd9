"""Committed positions -> the consumer group's offsets, so that the usual lag tools work.

They are read only when a person says so: to go on where another connector of that group stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import wait

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connector.kafka.admin import ADMIN_TIMEOUT_S, client_config, map_kafka_errors
from connector.runtime.lifecycle import start_call
from connector.runtime.topic_partitions import TopicPartition as TopicPartitionKey
from connector.settings import KafkaSettings

_CLOSE_S = 5.0


class ConsumerGroup:
    """The offsets of one consumer group, written from outside the group."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily."""
        self._name = settings.group_id
        self._consumer = Consumer(
            {**client_config(settings, "consumer"), "group.id": settings.group_id, "enable.auto.commit": False}
        )

    def commit_offsets(self, offsets: Mapping[TopicPartitionKey, int]) -> str | None:
        """Set the group's offsets; a failure is returned, not raised: nothing depends on them.

        Returns:
            What went wrong, or None.
        """
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            return f"offsets of group {self._name} could not follow: {error.args[0].str()}"
        return None

    def committed(self, at: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """Return the group's offsets where it has any. Raises RetriableError when the broker is away."""
        with map_kafka_errors(f"reading the offsets of group {self._name}"):
            found = self._consumer.committed([TopicPartition(*one) for one in at], timeout=ADMIN_TIMEOUT_S)
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def close(self) -> None:
        """Disconnect; brokers that are silent are not waited for."""
        wait([start_call(self._consumer.close, "close")], _CLOSE_S)
