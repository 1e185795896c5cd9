"""Messages -> the dead letter topic, acknowledged; without what the topic does not take of them. On the driver."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import attrs
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connector.errors import FatalError, RetriableError
from connector.kafka.client_errors import NO_CLIENT, is_transient_error, map_kafka_errors
from connector.kafka.kept_client import KeptClient
from connector.kafka.producer import SAFE, produce_message, purge_producer
from connector.settings import KafkaSettings

FLUSH_S = 60.0
HEADER_PREFIX = "__connect.errors."
OMITTED_HEADER, OMITTED_HEADERS_HEADER, OMITTED_KEY_HEADER = (
    f"{HEADER_PREFIX}{part}.omitted" for part in ("value", "headers", "key")
)
"""Name what a letter goes without, as the topic does not take it, and say how many bytes that had."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

_MAX_MESSAGE_BYTES, _MOST_REASON_BYTES = 1_000_000_000, 1_000


@attrs.frozen
class DeadLetterMessage:
    """What goes to the topic: for which record or letter (`place`), its key, value and headers.

    `reasons` are headers too: where the record is, and what became of it.
    """

    place: Hashable
    key: bytes | None
    value: bytes | None
    headers: Headers
    reasons: Headers = ()

    def shorten(self) -> DeadLetterMessage | None:
        """Leave out what is next: value, headers or key, which `reasons` tell how to find. None where nothing is left.

        How large it was is said. A reason may have a text of the record in it: at last that is cut.
        """
        if self.value is not None:
            return attrs.evolve(self, value=None, reasons=self._note(OMITTED_HEADER, len(self.value)))
        if self.headers:
            size = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
            return attrs.evolve(self, headers=(), reasons=self._note(OMITTED_HEADERS_HEADER, size))
        if self.key is not None:
            return attrs.evolve(self, key=None, reasons=self._note(OMITTED_KEY_HEADER, len(self.key)))
        cut = tuple((name, value and value[:_MOST_REASON_BYTES]) for name, value in self.reasons)
        return None if cut == self.reasons else attrs.evolve(self, reasons=cut)

    def _note(self, name: str, size: int) -> Headers:
        return (*self.reasons, (name, str(size).encode()))


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
        """Send, and wait for no more than room in the queue. RetriableError where there is none within `FLUSH_S`."""

        def delivered(error: KafkaError | None, _: Message | None) -> None:
            if error is None:
                self.acknowledged.add(sent.place)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and sent.shorten() is not None:
                self._too_large.append(sent)
            else:
                self._failed.append(error)

        if not len(self._producer):
            self._producer = self._client.get()
        with map_kafka_errors(f"writing to {self._topic}"):
            message, headers = (self._topic, sent.value, sent.key), [*sent.headers, *sent.reasons]
            try:
                produce_message(self._producer, FLUSH_S, *message, headers=headers, on_delivery=delivered)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                delivered(error.args[0], None)  # the producer's own limit (max.request.size)

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
            shorter: DeadLetterMessage | None = sent
            while shorter is not None:
                self.produce(shorter)
                self._wait()
                shorter = shorter.shorten() if self._too_large else None
                self._too_large.clear()
        failed, self._failed = self._failed, []
        for error in failed:
            text = (
                f"a message to {self._topic} was refused: {error.str()}; check the right to write to that "
                "topic, its max.message.bytes, and producer.override.max.request.size"
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
