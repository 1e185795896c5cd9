"""References (topic, partition, offset) -> the records themselves, a few at a time. On the driver.

For what a batch must not carry along: samples before the stream starts, and the bytes of dead letters. They are read by
the reader that tasks use: librdkafka stumbles over batches beside them that cannot be read, and never ends on some.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
from confluent_kafka import Consumer, Message, TopicPartition

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.connection import UnsupportedBroker
from connector.kafka.client_errors import NO_CLIENT, map_kafka_errors
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.readers import NATIVE, choose_isolation, choose_reader
from connector.kafka.consumer.records.record_headers import list_headers
from connector.kafka.consumer.single_records import read_forward
from connector.kafka.kept_client import KeptClient
from connector.kafka.protocol.error_codes import BROKER_REMEDY
from connector.runtime.topic_partitions import TopicPartition as TopicPartitionKey
from connector.settings import KafkaSettings

LOOKUP_TIMEOUT_S = 30.0


class FoundRecord(Protocol):
    """A record, as confluent-kafka shows it."""

    def offset(self) -> Any: ...  # noqa: D102
    def partition(self) -> Any: ...  # noqa: D102
    def key(self) -> Any: ...  # noqa: D102
    def value(self) -> Any: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102


def to_consumer_records(at: TopicPartitionKey, found: Sequence[FoundRecord]) -> ConsumerRecords:
    """Return records of one topic-partition, at least one, as those that tasks read."""
    records = [(record.offset() or 0, record.key(), record.value()) for record in found]
    return ConsumerRecords.of_records(at, records, [record.headers() or () for record in found])


@attrs.frozen
class _NativeRecord:
    """A record of our own reader."""

    _partition: int
    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: Sequence[tuple[str, bytes | None]]

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return self._partition

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._headers)


class RecordReader:
    """Reads single records by place; joins no group and commits nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connect lazily.

        Args:
            settings: where the cluster is, and which reader reads it.
        """
        self._settings = settings
        self._is_native = choose_reader(settings).kind == NATIVE
        self._client = KeptClient(lambda: settings.client("consumer"), self._open_consumer, Consumer.close)

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def read_from(
        self, starts: Mapping[TopicPartitionKey, int], count: int, most_bytes: int | None = None
    ) -> dict[TopicPartitionKey, list[FoundRecord]]:
        """Return up to `count` records of each topic-partition from its offset on; fewer where it ends.

        With `most_bytes`, no more once those of a topic-partition are together so large.

        Cost: a request or two per topic-partition; with librdkafka all are read at the same time, in one assignment.

        Raises:
            RetriableError: the broker is away.
            FatalError: it refuses to give them.
        """
        if self._is_native:
            address = ClusterAddress.of(self._settings.client("consumer"))
            try:
                return {at: self._read_natively(address, at, start, count, most_bytes) for at, start in starts.items()}
            except UnsupportedBroker:
                if self._settings.reading.reader != "auto":
                    raise
                self._is_native = False
        return self._read_by_librdkafka(self._client.get(), starts, count, most_bytes)

    def _open_consumer(self, config: dict[str, Any]) -> Consumer:
        own = {
            "group.id": f"{self._settings.group_id}-records",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # A fetch that finds nothing tells the end of a topic-partition; the broker waits so long for more.
            "fetch.wait.max.ms": _EMPTY_FETCH_MS,
        }
        with map_kafka_errors(NO_CLIENT):
            return Consumer({"isolation.level": "read_committed", **config, **own})

    def _read_natively(
        self, address: ClusterAddress, at: TopicPartitionKey, start: int, count: int, most_bytes: int | None
    ) -> list[FoundRecord]:
        found: list[FoundRecord] = []
        size = 0
        reading = read_forward(
            address,
            at,
            start,
            timeout_s=LOOKUP_TIMEOUT_S,
            max_unpacked_bytes=self._settings.reading.max_unpacked_bytes,
            one=count == 1,
            isolation=choose_isolation(self._settings),
        )
        for some in reading:
            columns = (some.offset.tolist(), some.key.to_pylist(), some.value.to_pylist())
            for row, (offset, key, value) in enumerate(zip(*columns, strict=True)):
                found.append(_NativeRecord(at[1], offset, key, value, list_headers(some, row)))
                size += len(key or b"") + len(value or b"")
                if len(found) == count or (most_bytes is not None and size >= most_bytes):
                    return found
        return found

    def _read_by_librdkafka(
        self, consumer: Consumer, starts: Mapping[TopicPartitionKey, int], count: int, most_bytes: int | None
    ) -> dict[TopicPartitionKey, list[FoundRecord]]:
        found: dict[TopicPartitionKey, list[Message]] = {at: [] for at in starts}
        waiting = set(starts)
        with map_kafka_errors("reading single records"):
            consumer.assign([TopicPartition(topic, partition, o) for (topic, partition), o in starts.items()])
            deadline = time.monotonic() + LOOKUP_TIMEOUT_S
            while waiting:
                for message in _poll(consumer):
                    _collect(consumer, message, found, waiting, count, most_bytes)
                if time.monotonic() > deadline:
                    raise RetriableError(f"reading single records: no answer from {len(waiting)} topic-partitions")
            # A partition stays paused when it is assigned again.
            consumer.resume([TopicPartition(*at) for at in starts])
            consumer.unassign()
        return {at: list(messages) for at, messages in found.items()}

    def read_exactly(self, at: TopicPartitionKey, offsets: Iterable[int]) -> Iterator[FoundRecord]:
        """Return the records at these ascending offsets.

        Raises:
            FatalError: one of them is gone from the topic.
        """
        for offset in offsets:
            found = self.read_from({at: offset}, 1)[at]
            if not found or found[0].offset() != offset:
                raise FatalError(
                    f"{at[0]}-{at[1]} offset {offset} is no longer in the topic: retention removed it first; write "
                    "the row by other means, or let Debezium read the table again (a snapshot signal)"
                )
            yield found[0]


def _poll(consumer: Consumer) -> list[Message]:
    """Wait for a message, and return it with those that are here too: `consume` waits for as many as it is told."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_POLL_RECORDS, 0)]


def _collect(
    consumer: Consumer,
    message: Message,
    found: dict[TopicPartitionKey, list[Message]],
    waiting: set[TopicPartitionKey],
    count: int,
    most_bytes: int | None,
) -> None:
    at = (message.topic(), message.partition())
    error = message.error()
    if error is not None and error.code() != _PARTITION_EOF and at in waiting:
        if not error.retriable():
            raise FatalError(f"reading {at[0]}-{at[1]}: {error.str()}; {BROKER_REMEDY}")
        return
    if at not in waiting:
        return
    if error is None:
        found[at].append(message)
    full = most_bytes is not None and sum(map(len, found[at])) >= most_bytes
    if error is not None or full or len(found[at]) == count:
        waiting.discard(at)
        consumer.pause([TopicPartition(*at)])


_POLL_RECORDS, _POLL_S = 500, 0.2
_EMPTY_FETCH_MS = 10
_PARTITION_EOF = -191
