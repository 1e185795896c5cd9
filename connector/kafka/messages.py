"""A few messages of the driver's own -> side topics: transactions, heartbeats, schema changes."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer

from connector.errors import FatalError, RetriableError
from connector.kafka.cluster import Cluster, configuration, mapped
from connector.settings import KafkaSettings

FLUSH_S = 60.0
KeyValue = tuple[bytes, bytes | None]


class Messages:
    """Writes single messages; partitions by the Java murmur2 hash, as the producer of events does."""

    def __init__(self, settings: KafkaSettings, cluster: Cluster) -> None:
        """Prepare; nothing is opened before the first message."""
        self._settings, self._cluster = settings, cluster
        self._producer: Producer | None = None
        self._failed: list[KafkaError] = []
        self._made: set[str] = set()

    def create(self, topic: str, replication: int) -> None:
        """Create a topic of one partition, in which order is known, unless it is there."""
        if topic not in self._made:
            self._cluster.create(topic, 1, replication, {})
            self._made.add(topic)

    def send(self, topic: str, messages: Iterable[KeyValue]) -> None:
        """Write messages in order and wait until all are acknowledged.

        Raises:
            RetriableError: the broker is away or did not acknowledge in time.
            FatalError: the topic cannot be written.
        """
        producer = self._opened()
        with mapped(f"writing to {topic}"):
            for key, value in messages:
                producer.produce(topic, value, key, on_delivery=self._delivered)
            left = producer.flush(FLUSH_S)
        if left:
            raise RetriableError(f"{left} messages to {topic} were not acknowledged within {FLUSH_S:.0f} s")
        if self._failed:
            raise FatalError(f"a message to {topic} was refused: {self._failed.pop().str()}")

    def _opened(self) -> Producer:
        if self._producer is None:
            own = {"partitioner": "murmur2_random", **configuration(self._settings, "producer")}
            self._producer = Producer({**own, "enable.idempotence": True})
        return self._producer

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)
