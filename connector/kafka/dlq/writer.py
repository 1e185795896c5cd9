"""Unusable records -> the dead letter topic: original key, value and headers, and the reason in headers. On the driver.

Header names are Kafka Connect's (KIP-298); some are added: `__connect.errors.topic.id`, which tells the record's topic
from others of its name, and `__connect.errors.value.omitted`, the size of a value that the topic does not take; so for
`headers` and `key`, which are left out where that is not enough. A record batch that cannot be read is one letter: its
value is the batch's bytes. Letters are written and acknowledged before the batch that left them out is committed: a
crash between the two writes them again, none is ever lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from connector.kafka.admin import KafkaAdmin
from connector.kafka.client_errors import map_kafka_errors
from connector.kafka.consumer.raw_batches import fetch_raw_batch
from connector.kafka.dlq.producer import HEADER_PREFIX, DeadLetterMessage, DeadLetterProducer, Headers
from connector.kafka.dlq.rejected_records import BATCH_STAGE, RejectedRecord, record_coordinates
from connector.kafka.record_lookup import RecordReader
from connector.settings import ErrorSettings, KafkaSettings


class DeadLetterWriter:
    """Writes to the dead letter topic; creates it on first use."""

    def __init__(self, name: str, kafka: KafkaSettings, errors: ErrorSettings, cluster: KafkaAdmin) -> None:
        """Prepare; nothing is opened before the first letter."""
        self._name, self._kafka, self._errors, self._cluster = name, kafka, errors, cluster
        self._producer: DeadLetterProducer | None = None

    def write(self, letters: Iterable[RejectedRecord], topic_ids: Mapping[str, str]) -> None:
        """Write letters and wait until all are acknowledged; called again, it leaves those out that are.

        `topic_ids` are those of the records' topics, as far as the cluster tells.

        Raises:
            RetriableError: the broker is away or did not acknowledge in time.
            FatalError: the topic cannot be written, or a record is gone from its topic.
        """
        letters = list(letters)
        if not letters:
            return
        producer = self._open_producer()
        # What was not acknowledged in time may be on its way still.
        producer.flush()
        ordered = sorted(
            (x for x in letters if record_coordinates(x) not in producer.acknowledged), key=record_coordinates
        )
        with RecordReader(self._kafka) as records, map_kafka_errors(f"writing dead letters to {self._errors.topic}"):
            for at, group in groupby(ordered, key=lambda letter: (letter.topic, letter.partition)):
                same = list(group)
                whole = [letter for letter in same if letter.stage != BATCH_STAGE]
                found = records.read_exactly(at, [letter.offset for letter in whole])
                for letter, message in zip(whole, found, strict=True):
                    told = record_coordinates(letter), message.key(), message.value(), tuple(message.headers() or ())
                    producer.produce(DeadLetterMessage(*told, self._reasons(letter, topic_ids)))
                for letter in same:
                    if letter.stage == BATCH_STAGE:
                        batch = fetch_raw_batch(self._kafka, at, letter.offset)
                        place, reasons = record_coordinates(letter), self._reasons(letter, topic_ids)
                        producer.produce(DeadLetterMessage(place, None, batch, (), reasons))
        producer.flush()
        producer.acknowledged.clear()

    def _open_producer(self) -> DeadLetterProducer:
        if self._producer is None:
            self._cluster.create(self._errors.topic, 1, self._errors.replication_factor, {})
            self._producer = DeadLetterProducer(self._errors.topic, self._kafka)
        return self._producer

    def _reasons(self, letter: RejectedRecord, topic_ids: Mapping[str, str]) -> Headers:
        values = {
            "topic": letter.topic,
            "topic.id": topic_ids.get(letter.topic, ""),
            "partition": str(letter.partition),
            "offset": str(letter.offset),
            "connector.name": self._name,
            "task.id": "0",
            "stage": letter.stage,
            "class.name": "connector.sink",
            "exception.class.name": "connector.errors.DataFault",
            "exception.message": letter.reason,
        }
        return tuple((HEADER_PREFIX + name, value.encode()) for name, value in values.items())
