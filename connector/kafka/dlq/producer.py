"""Messages -> the dead letter topic, acknowledged; without a value that the topic does not take. On the driver."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import attrs
from confluent_kafka import KafkaError, Message, Producer

from connector.errors import FatalError, RetriableError
from connector.kafka.admin import NO_CLIENT, is_transient_error, map_kafka_errors
from connector.kafka.kept_client import KeptClient
from connector.kafka.producer import SAFE, purge_producer
from connector.settings import KafkaSettings

FLUSH_S = 60.0
HEADER_PREFIX = "__connect.errors."
OMITTED_HEADER = f"{HEADER_PREFIX}value.omitted"

_MAX_MESSAGE_BYTES = 1_000_000_000


@attrs.frozen
class DeadLetterMessage:
    """What goes to the topic: for which record or letter (`place`), its key, value and headers."""

    place: Hashable
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def omit_value(self) -> DeadLetterMessage:
        """Leave the value out, which the headers tell how to find, and say how large it was."""
        size = str(len(self.value or b"")).encode()
        return DeadLetterMessage(self.place, self.key, None, (*self.headers, (OMITTED_HEADER, size)))


class DeadLetterProducer:
    """Produces to one dead letter topic, which exists."""

    def __init__(self, topic: str, kafka: KafkaSettings) -> None:
        """Open a client; no broker is asked yet."""
        self._topic = topic
        self._client = KeptClient(lambda: kafka.client("producer"), _open_producer, purge_producer)
        self._producer = self._client.get()
        self._failed: list[KafkaError] = []
        self._too_large: list[DeadLetterMessage] = []
        self.acknowledged: set[Hashable] = set()

    def produce(self, sent: DeadLetterMessage) -> None:
        """Send, and do not wait."""

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.add(sent.place)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and sent.value is not None:
                self._too_large.append(sent)
            else:
                self._failed.append(error)

        if not len(self._producer):
            self._producer = self._client.get()
        with map_kafka_errors(f"writing to {self._topic}"):
            while True:
                try:
                    self._producer.produce(
                        self._topic, sent.value, sent.key, headers=list(sent.headers), on_delivery=delivered
                    )
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    return

    def flush(self) -> None:
        """Wait until all are acknowledged.

        Raises:
            RetriableError: some were not in time; they may be on their way still, or are to be sent again. Those of a
                login by a token, which may have been revoked, are given up, and to be sent again.
            FatalError: the topic refuses one.
        """
        self._wait()
        refused, self._too_large = self._too_large, []
        for sent in refused:
            # A broker refuses a batch of messages as a whole: what was too large with others may fit by itself.
            self.produce(sent)
            self._wait()
            if self._too_large:
                self._too_large.clear()
                self.produce(sent.omit_value())
                self._wait()
        failed, self._failed = self._failed, []
        for error in failed:
            text = (
                f"a message to {self._topic} was refused: {error.str()}; check the right to write to that "
                "topic, and its max.message.bytes"
            )
            raise RetriableError(text) if all(map(is_transient_error, failed)) else FatalError(text)

    def _wait(self) -> None:
        if self._producer.flush(FLUSH_S):
            if self._client.renew_login():
                purge_producer(self._producer)
                self._failed.clear()
            raise RetriableError(f"messages to {self._topic} were not acknowledged within {FLUSH_S:.0f} s")


def _open_producer(config: dict[str, Any]) -> Producer:
    # The client's own limit must not be what refuses a letter: the broker knows its topic's.
    own = {"message.max.bytes": _MAX_MESSAGE_BYTES, "partitioner": "murmur2_random", "linger.ms": 20}
    with map_kafka_errors(NO_CLIENT):
        return Producer({**own, **config, **SAFE})
