"""Committed positions -> the consumer group's offsets, so that the usual lag tools work.

They are read only when a person says so: to continue where another connector of that group stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connector.kafka.admin import ADMIN_TIMEOUT_S
from connector.kafka.client_errors import NO_CLIENT, error_text, is_unauthorized, map_kafka_errors
from connector.kafka.kept_client import KeptClient
from connector.runtime.lifecycle import start_call
from connector.runtime.topic_partitions import TopicPartition as TopicPartitionKey
from connector.settings import KafkaSettings

_REMEDY = "lag tools do not see how far the sink is: give this user READ on the group (group.id), and on its topics"
_ANSWER_S = 5.0
"""So long brokers are waited for: nothing depends on what they say."""


class ConsumerGroup:
    """The offsets of one consumer group, written from outside the group."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily."""
        self._name = settings.group_id
        self._client = KeptClient(lambda: settings.client("consumer"), partial(_open_consumer, self._name), _close)
        self._client.get()
        self._asked: Future[Any] | None = None

    def commit_offsets(self, offsets: Mapping[TopicPartitionKey, int]) -> str | None:
        """Set the group's offsets; a failure is returned, not raised: nothing depends on them.

        Returns:
            What went wrong, or None.
        """
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        if self._asked is None or self._asked.done():
            # librdkafka itself waits for a minute.
            consumer = self._client.get()
            self._asked = start_call(lambda: consumer.commit(offsets=positions, asynchronous=False), "group")
            wait([self._asked], _ANSWER_S)
        if not self._asked.done():
            return f"offsets of group {self._name} could not follow: the brokers do not answer"
        try:
            self._asked.result()
        except KafkaException as error:
            fault = error.args[0]
            if not isinstance(fault, KafkaError) or fault.code() < 0:
                self._client.renew_login()  # of one that is refused librdkafka says nothing
            text = f"offsets of group {self._name} could not follow: {error_text(fault)}"
            return f"{text}; {_REMEDY}" if is_unauthorized(fault) else text
        return None

    def fetch_committed(self, at: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """Return the group's offsets where it has any. Raises RetriableError when the broker is away."""
        with map_kafka_errors(f"reading the offsets of group {self._name}"):
            found = self._client.get().committed([TopicPartition(*one) for one in at], timeout=ADMIN_TIMEOUT_S)
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def close(self) -> None:
        """Disconnect; brokers that are silent are not waited for."""

        asked = self._asked

        def disconnect() -> None:
            if asked is not None:
                wait([asked])  # a client that is closed under a call ends the process
            self._client.close()

        wait([start_call(disconnect, "close")], _ANSWER_S)


def _open_consumer(group: str, config: dict[str, Any]) -> Consumer:
    with map_kafka_errors(NO_CLIENT):
        return Consumer({**config, "group.id": group, "enable.auto.commit": False})


def _close(consumer: Consumer) -> None:
    consumer.close()
