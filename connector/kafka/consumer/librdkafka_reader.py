"""An offset range -> its records, by librdkafka: the second reader, for what ours cannot do, with the same contract.

librdkafka makes an object per record: about five times the cost of `consumer.fetcher`. It knows logins that ours does
not (Kerberos), and brokers that are too old for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.admin import is_transient_error
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.fetcher import FetchSettings
from connector.kafka.consumer.header_bytes import encode_headers
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.record_columns import RecordColumns
from connector.kafka.librdkafka_config import build_librdkafka_config
from connector.kafka.protocol.requests import READ_COMMITTED

RETRY_TIMEOUT_S = 30.0
_POLL_S, _POLL_RECORDS = 0.2, 2_000
_QUERY_S = 10.0
_GAPS = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})  # noqa: SLF001
_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def read_range(
    address: ClusterAddress, wanted: OffsetRange, how: FetchSettings, meter: FetchMeter | None = None
) -> Iterator[ConsumerRecords]:
    """Return the records of a range.

    Raises:
        RetriableError: brokers stayed away for half a minute.
        GapError: the range is gone, or the log was cut.
        FatalError: we may not read it, or a record batch cannot be read.
    """
    consumer = _consumer_for(address, how)
    place = TopicPartition(wanted.topic, wanted.partition, wanted.start)
    if wanted.epoch >= 0:
        place = TopicPartition(wanted.topic, wanted.partition, wanted.start, leader_epoch=wanted.epoch)
    try:
        consumer.assign([place])
        yield from _RangeReader(consumer, wanted, how, meter or FetchMeter())
    finally:
        consumer.unassign()


class _RangeReader:
    """The records of one range, some at a time."""

    def __init__(self, consumer: Consumer, wanted: OffsetRange, how: FetchSettings, meter: FetchMeter) -> None:
        self._consumer, self._wanted, self._how, self._meter = consumer, wanted, how, meter
        self._place = f"{wanted.topic}-{wanted.partition}"
        self._next = wanted.start
        self._progress_at = time.monotonic()
        meter.readers.add("librdkafka")

    def __iter__(self) -> Iterator[ConsumerRecords]:
        waiting: list[Message] = []
        size = 0
        while self._next < self._wanted.end:
            for message in self._poll():
                if message.error() is None:
                    waiting.append(message)
                    size += len(message)
            if size >= self._how.partition_bytes:
                yield self._to_records(waiting)
                waiting, size = [], 0
        if waiting:
            yield self._to_records(waiting)

    def _poll(self) -> list[Message]:
        """Return what has come of the range, and note how far that is; raises what errors mean."""
        began = time.monotonic()
        found = []
        for message in self._consumer.consume(_POLL_RECORDS, _POLL_S):
            error = message.error()
            offset = message.offset()
            if message.topic() != self._wanted.topic or message.partition() != self._wanted.partition:
                continue
            if error is None:
                if self._next <= offset < self._wanted.end:
                    found.append(message)
                self._advance(offset + 1)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._advance(offset)
            else:
                self._judge(error)
        self._meter.wait_s += 0.0 if found else time.monotonic() - began
        self._meter.fetches += bool(found)
        if time.monotonic() - self._progress_at > RETRY_TIMEOUT_S:
            raise RetriableError(f"{self._place} stays unread at offset {self._next}: librdkafka gives nothing")
        return found

    def _advance(self, behind: int) -> None:
        if behind > self._next:
            self._next, self._progress_at = behind, time.monotonic()

    def _judge(self, error: KafkaError) -> None:
        """Raise what an error means; pass over one that may go away."""
        place = f"{self._place} offset {self._next}"
        if error.code() in _GAPS:
            self._raise_gap(place, error)
        if not is_transient_error(error):
            raise FatalError(f"{place} cannot be read: {error.name()}: {error.str()}")
        self._meter.retries += 1

    def _raise_gap(self, place: str, error: KafkaError) -> None:
        try:
            at = TopicPartition(self._wanted.topic, self._wanted.partition)
            oldest, _ = self._consumer.get_watermark_offsets(at, timeout=_QUERY_S)
        except KafkaException as unknown:
            raise RetriableError(f"{place} is out of range, and nobody tells the log's bounds: {unknown}") from unknown
        if error.code() == KafkaError._LOG_TRUNCATION:  # noqa: SLF001
            raise GapError(f"{place}: the log was cut by an unclean leader election: {error.str()}")
        if oldest > self._next:
            raise GapError(f"records are gone from Kafka before they were read: {place}; it begins at {oldest} now")
        raise RetriableError(f"{place} is out of range by the broker, though the log begins at {oldest}")

    def _to_records(self, messages: Sequence[Message]) -> ConsumerRecords:
        wanted = self._wanted
        keys = pa.array([_to_bytes(message.key()) for message in messages], pa.binary())
        values = pa.array([_to_bytes(message.value()) for message in messages], pa.binary())
        data, headers, ends = encode_headers([message.headers() for message in messages])
        offsets = np.array([message.offset() for message in messages], np.int64)
        self._meter.size_bytes += int(keys.nbytes + values.nbytes)
        epoch = messages[-1].leader_epoch()
        if epoch is not None:
            self._meter.note_epoch((wanted.topic, wanted.partition), int(offsets[-1]), epoch)
        columns = RecordColumns(offsets, keys, values, data, headers, ends)
        return ConsumerRecords.of_fetched(wanted.topic, wanted.partition, columns)


def _to_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@cache
def _consumer_for(address: ClusterAddress, how: FetchSettings) -> Consumer:
    """Return the process's consumer of a cluster; it is used by one thread, and joins no group."""
    own = {
        "check.crcs": True,
        "group.id": "icebridge-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": _ISOLATION_LEVELS[how.isolation == READ_COMMITTED],
        "fetch.message.max.bytes": how.partition_bytes,
        "fetch.wait.max.ms": how.max_wait_ms,
    }
    return Consumer({"client.id": "icebridge", **build_librdkafka_config(dict(address.settings)), **own})
