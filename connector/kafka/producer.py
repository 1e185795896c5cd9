"""A few messages of the driver's own -> side topics: transactions, heartbeats, schema changes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from connector.errors import FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.client_errors import NO_CLIENT, is_transient_error, map_kafka_errors
from connector.kafka.kept_client import KeptClient
from connector.settings import KafkaSettings

FLUSH_S = 60.0
_FLUSH_MARGIN_S = 5.0
"""How much longer than the producer tries to deliver a message its outcome is waited for."""

_ROOM_S = 0.1
"""So long room in a producer's queue is waited for at a time."""

SAFE = {"acks": "all", "enable.idempotence": True}
"""What no producer goes without, whatever `producer.override.` says: what is acknowledged is there, once."""

_ALONE = {"batch.size": 1}
"""Each message is a batch of its own: librdkafka does not cut one that the topic does not take, as Java does."""

KeyValue = tuple[bytes, bytes | None]


class MessageProducer:
    """Writes single messages; partitions by the Java murmur2 hash, as the producer of events does.

    What was not acknowledged when `send` returns is never written later: whoever sends again would have it twice, or
    behind what follows it.
    """

    def __init__(self, settings: KafkaSettings, cluster: KafkaAdmin, flush_s: float = FLUSH_S) -> None:
        """Prepare; nothing is opened before the first message. `flush_s` is how long messages are tried to deliver."""
        self._cluster, self._flush_s = cluster, flush_s
        self._client = KeptClient(lambda: settings.client("producer"), self._open_producer, purge_producer)
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
        producer, faults = self._client.get(), list[KafkaError]()
        delivered, written = partial(_collect_error, faults), False
        try:
            with map_kafka_errors(f"writing to {topic}"):
                for key, value in messages:
                    if faults:
                        break  # none of these counts any more
                    produce_message(producer, self._flush_s, topic, value, key, on_delivery=delivered)
                unsent = producer.flush(self._flush_s + _FLUSH_MARGIN_S)
            written = not (unsent or faults)
        finally:
            if not written:
                self._forget(producer)
                self._made.discard(topic)  # it may have been deleted meanwhile
        if unsent:
            raise RetriableError(f"{unsent} messages to {topic} were not acknowledged within {self._flush_s:.0f} s")
        if faults:
            kind = RetriableError if all(map(is_transient_error, faults)) else FatalError
            raise kind(f"a message to {topic} was not written: {faults[0].str()}")

    def _open_producer(self, configured: dict[str, Any]) -> Producer:
        own = {"partitioner": "murmur2_random", "message.timeout.ms": int(self._flush_s * 1000)}
        if "delivery.timeout.ms" in configured:
            del own["message.timeout.ms"]
        with map_kafka_errors(NO_CLIENT):
            return Producer({**own, **configured, **SAFE, **_ALONE})

    def _forget(self, producer: Producer) -> None:
        """Drop what waits to be written, and the producer with it: what comes next has one of its own."""
        purge_producer(producer)
        if not self._client.renew_login():
            self._client.drop()


def produce_message(producer: Producer, within_s: float, topic: str, *message: Any, **more: Any) -> None:
    """Hand a message over to a producer, as soon as its queue has room.

    Raises:
        RetriableError: it has none for so long, as the brokers are away or slow.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            producer.produce(topic, *message, **more)
        except BufferError as error:
            if time.monotonic() > deadline:
                raise RetriableError(f"the producer of messages to {topic} takes no more messages now") from error
            producer.poll(_ROOM_S)
        else:
            return


def purge_producer(producer: Producer) -> None:
    """Drop what a producer has not written."""
    producer.purge()
    producer.flush(0)


def _collect_error(faults: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    if error is not None:
        faults.append(error)
