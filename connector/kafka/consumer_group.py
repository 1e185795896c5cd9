"""Committed positions -> the consumer group's offsets, so that the usual lag tools work.

They are read only when a person says so: to continue where another connector of that group stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connector.kafka.admin import ADMIN_TIMEOUT_S, NO_CLIENT, client_config, map_kafka_errors
from connector.runtime.lifecycle import start_call
from connector.runtime.topic_partitions import TopicPartition as TopicPartitionKey
from connector.settings import KafkaSettings

_ANSWER_S = 5.0
"""So long brokers are waited for: nothing depends on what they say."""


class ConsumerGroup:
    """The offsets of one consumer group, written from outside the group."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily."""
        self._name = settings.group_id
        own = {"group.id": settings.group_id, "enable.auto.commit": False}
        with map_kafka_errors(NO_CLIENT):
            self._consumer = Consumer({**client_config(settings, "consumer"), **own})
        self._asked: Future[Any] | None = None

    def commit_offsets(self, offsets: Mapping[TopicPartitionKey, int]) -> str | None:
        """Set the group's offsets; a failure is returned, not raised: nothing depends on them.

        Returns:
            What went wrong, or None.
        """
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        if self._asked is None or self._asked.done():
            # librdkafka itself waits for a minute.
            self._asked = start_call(lambda: self._consumer.commit(offsets=positions, asynchronous=False), "group")
            wait([self._asked], _ANSWER_S)
        if not self._asked.done():
            return f"offsets of group {self._name} could not follow: the brokers do not answer"
        try:
            self._asked.result()
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

        def disconnect() -> None:
            if self._asked is not None:
                wait([self._asked])  # a client that is closed under a call ends the process
            self._consumer.close()

        wait([start_call(disconnect, "close")], _ANSWER_S)
