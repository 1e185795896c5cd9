"""Partition 0 of the signal topic -> signals; offsets are stored with the source's, not with the broker."""

from __future__ import annotations

from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connector.errors import FatalError, RetriableError
from connector.kafka.client_errors import NO_CLIENT, map_kafka_errors
from connector.kafka.kept_client import KeptClient
from connector.settings.source.signals import KafkaSignals
from connector.source.signals.channel import ReceivedSignals
from connector.source.snapshots.signal import InvalidSignal, SignalText, read_document

_ANSWER_S = 5.0
_MAX_RECORDS = 500
_PARTITION = 0


class KafkaChannel:
    """The signals of a topic whose record key is the source's `topic.prefix`; others are for other connectors."""

    name = "kafka"

    def __init__(self, settings: KafkaSignals, prefix: str) -> None:
        """Prepare; nothing is opened before the first read."""
        self._settings, self._prefix = settings, prefix
        self._client = KeptClient(lambda: settings.kafka.client("consumer"), self._open, Consumer.close)
        self._next: int | None = None
        self._missing_told = False

    def read(self, position: Any) -> ReceivedSignals:
        """Return the signals from a position on, `{"topic", "offset"}`, up to the newest one that there is now."""
        stored = position["offset"] if position and position.get("topic") == self._settings.topic else None
        try:
            with map_kafka_errors(f"reading signals of {self._settings.topic}"):
                return self._read(stored)
        except (FatalError, RetriableError) as error:
            cause = error.__cause__
            unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001
            if not isinstance(cause, KafkaException) or cause.args[0].code() not in unknown:
                self._client.renew_login()
                raise
            if not self._missing_told:
                self._missing_told = True
                structlog.get_logger().warning("the signal topic is not there yet", topic=self._settings.topic)
            return ReceivedSignals((), position)

    def acknowledge(self) -> None:
        """Nothing has to be told."""

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _read(self, stored: int | None) -> ReceivedSignals:
        consumer = self._client.get()
        place = TopicPartition(self._settings.topic, _PARTITION)
        low, high = consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
        start = stored if stored is not None else (low if self._settings.from_beginning else high)
        # A topic that was made again begins at 0, and one that was shortened later than where we stood.
        start = max(start, low) if start <= high else low
        signals: list[SignalText | InvalidSignal] = []
        if start < high:
            if self._next != start:
                consumer.assign([TopicPartition(self._settings.topic, _PARTITION, start)])
            start, messages, is_ended = self._consume(consumer, start, high)
            signals = [signal for message in messages if (signal := self._parse(message)) is not None]
            # A client says once that there is no more: it is to say so of what an open transaction holds back as well.
            self._next = None if is_ended else start
        return ReceivedSignals(tuple(signals), {"topic": self._settings.topic, "offset": start})

    def _consume(self, consumer: Consumer, start: int, high: int) -> tuple[int, list[Message], bool]:
        """Return where to continue, the records up to the end that was seen, and whether there were no more.

        What ends a transaction is no record and counts too: without a word of the end it would be waited for.
        """
        found, is_ended = list[Message](), False
        wait_s = max(self._settings.poll_timeout_ms / 1000, 0.1)
        silent_s = 0.0
        while start < high and len(found) < _MAX_RECORDS and silent_s < _ANSWER_S and not is_ended:
            messages = consumer.consume(_MAX_RECORDS, timeout=wait_s)
            for message in messages:
                fault = message.error()
                if fault is None:
                    found.append(message)
                    start = int(message.offset() or 0) + 1
                elif fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    start, is_ended = max(start, int(message.offset() or 0)), True
                else:
                    raise KafkaException(fault)
            (at,) = consumer.position([TopicPartition(self._settings.topic, _PARTITION)])
            start = max(start, at.offset)
            silent_s = 0.0 if messages else silent_s + wait_s
        return start, found, is_ended

    def _parse(self, message: Message) -> SignalText | InvalidSignal | None:
        key, value = message.key(), message.value()
        if key is None or bytes(key).decode("utf-8", "replace").strip('"') != self._prefix:
            structlog.get_logger().info("a signal is not for this source", offset=message.offset())
            return None
        if not value:
            return None
        try:
            return read_document(value, f"{self._settings.topic}-{message.offset()}")
        except InvalidSignal as error:
            return error

    def _open(self, config: dict[str, Any]) -> Consumer:
        self._next = None
        own = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True}
        with map_kafka_errors(NO_CLIENT):
            return Consumer({**config, "group.id": self._settings.kafka.group_id, **own})
