"""Committed positions -> the consumer group's offsets, so that the usual lag tools work. They are never read."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connector.kafka.cluster import At, configuration
from connector.settings import KafkaSettings


class Group:
    """The offsets of one consumer group, written from outside the group."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily."""
        self._name = settings.group_id
        self._consumer = Consumer(
            {**configuration(settings, "consumer"), "group.id": settings.group_id, "enable.auto.commit": False}
        )

    def follow(self, offsets: Mapping[At, int]) -> str | None:
        """Set the group's offsets; a failure is told, not raised, as nothing depends on them.

        Returns:
            What went wrong, or None.
        """
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            return f"offsets of group {self._name} could not follow: {error.args[0].str()}"
        return None

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
