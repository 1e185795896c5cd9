"""Unusable records -> the dead letter topic: original key, value and headers, and the reason in headers. On the driver.

Header names are Kafka Connect's (KIP-298); one is added: `__connect.errors.value.omitted`, the size of a value that the
topic does not take. A record batch that cannot be read is one letter, whose value is the batch's bytes. Letters are
written and acknowledged before the batch that left them out is committed: a crash between the two writes them again,
none is ever lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Protocol

import attrs
from confluent_kafka import KafkaError, Message, Producer

from connector.errors import FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin, client_config, map_kafka_errors
from connector.kafka.consumer.raw_batches import fetch_raw_batch
from connector.kafka.record_lookup import FoundRecord, RecordReader
from connector.settings import ErrorSettings, KafkaSettings

FLUSH_S = 60.0
HEADER_PREFIX = "__connect.errors."
OMITTED_HEADER = f"{HEADER_PREFIX}value.omitted"
BATCH_STAGE = "KAFKA_CONSUME"
"""The stage of letters for a whole record batch that cannot be read: their value is the batch as it is in the log."""

_MAX_MESSAGE_BYTES = 1_000_000_000


class RejectedRecord(Protocol):
    """A record by reference, and why it cannot be used."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def stage(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


RecordCoordinates = tuple[str, int, int]


def record_coordinates(letter: RejectedRecord) -> RecordCoordinates:
    """Return where a letter's record is: topic, partition, offset."""
    return letter.topic, letter.partition, letter.offset


@attrs.frozen
class _DeadLetterMessage:
    """What goes to the topic for a letter."""

    place: RecordCoordinates
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def omit_value(self) -> _DeadLetterMessage:
        """Leave the value out, which the headers tell how to find, and say how large it was."""
        size = str(len(self.value or b"")).encode()
        return _DeadLetterMessage(self.place, self.key, None, (*self.headers, (OMITTED_HEADER, size)))


class DeadLetterWriter:
    """Writes to the dead letter topic; creates it on first use."""

    def __init__(self, name: str, kafka: KafkaSettings, errors: ErrorSettings, cluster: KafkaAdmin) -> None:
        """Prepare; nothing is opened before the first letter."""
        self._name, self._kafka, self._errors, self._cluster = name, kafka, errors, cluster
        self._producer: Producer | None = None
        self._failed: list[KafkaError] = []
        self._too_large: list[_DeadLetterMessage] = []
        self._acknowledged: set[RecordCoordinates] = set()

    def write(self, letters: Iterable[RejectedRecord]) -> None:
        """Write letters and wait until all are acknowledged; called again, it leaves those out that are.

        Raises:
            RetriableError: the broker is away or did not acknowledge in time.
            FatalError: the topic cannot be written, or a record is gone from its topic.
        """
        letters = list(letters)
        if not letters:
            return
        producer = self._open_producer()
        # What was not acknowledged in time may be on its way still.
        self._flush(producer)
        ordered = sorted(
            (x for x in letters if record_coordinates(x) not in self._acknowledged), key=record_coordinates
        )
        with RecordReader(self._kafka) as records, map_kafka_errors(f"writing dead letters to {self._errors.topic}"):
            for at, group in groupby(ordered, key=lambda letter: (letter.topic, letter.partition)):
                same = list(group)
                whole = [letter for letter in same if letter.stage != BATCH_STAGE]
                found = records.read_exactly(at, [letter.offset for letter in whole])
                for letter, message in zip(whole, found, strict=True):
                    self._send(producer, letter, message)
                for letter in same:
                    if letter.stage == BATCH_STAGE:
                        batch = fetch_raw_batch(self._kafka, at, letter.offset)
                        headers = tuple(self._reasons(letter))
                        self._produce(producer, _DeadLetterMessage(record_coordinates(letter), None, batch, headers))
        self._flush(producer)
        while self._too_large:
            self._produce(producer, self._too_large.pop().omit_value())
            self._flush(producer)
        if self._failed:
            raise FatalError(f"a dead letter to {self._errors.topic} was refused: {self._failed[0].str()}")
        self._acknowledged.clear()

    def _open_producer(self) -> Producer:
        if self._producer is None:
            self._cluster.create(self._errors.topic, 1, self._errors.replication_factor, {})
            own = {"partitioner": "murmur2_random", "linger.ms": 20, **client_config(self._kafka, "producer")}
            # The client's own limit must not be what refuses a letter: the broker knows its topic's.
            largest = {"message.max.bytes": _MAX_MESSAGE_BYTES}
            self._producer = Producer({**largest, **own, "enable.idempotence": True})
        return self._producer

    def _flush(self, producer: Producer) -> None:
        if producer.flush(FLUSH_S):
            raise RetriableError(f"dead letters to {self._errors.topic} were not acknowledged within {FLUSH_S:.0f} s")

    def _send(self, producer: Producer, letter: RejectedRecord, message: FoundRecord) -> None:
        headers = (*(message.headers() or ()), *self._reasons(letter))
        self._produce(producer, _DeadLetterMessage(record_coordinates(letter), message.key(), message.value(), headers))

    def _produce(self, producer: Producer, sent: _DeadLetterMessage) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._acknowledged.add(sent.place)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and sent.value is not None:
                self._too_large.append(sent)
            else:
                self._failed.append(error)

        while True:
            try:
                producer.produce(
                    self._errors.topic, sent.value, sent.key, headers=list(sent.headers), on_delivery=delivered
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _reasons(self, letter: RejectedRecord) -> list[tuple[str, bytes]]:
        values = {
            "topic": letter.topic,
            "partition": str(letter.partition),
            "offset": str(letter.offset),
            "connector.name": self._name,
            "task.id": "0",
            "stage": letter.stage,
            "class.name": "connector.sink",
            "exception.class.name": "connector.errors.DataFault",
            "exception.message": letter.reason,
        }
        return [(HEADER_PREFIX + name, value.encode()) for name, value in values.items()]
