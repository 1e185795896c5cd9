"""An offset range -> its records, in chunks of one fetch each; the next is on its way while one is worked on.

Exactly the records whose offsets are in the range and that are committed are given, in order. Offsets that are gone
from the middle (compaction, markers of transactions) are passed over; a range that is gone is an error.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import attrs

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.consumer import protocol
from connector.kafka.consumer.broker_client import BrokerClient, HostPort
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.protocol import FetchedPartition
from connector.kafka.consumer.record_batches import (
    RecordBatch,
    UnreadableRecords,
    decompress,
    drop_aborted,
    parse_batches,
)
from connector.kafka.consumer.record_columns import BatchSection, RecordColumns, read_records

_OFFSET_OUT_OF_RANGE = 1
_UNKNOWN_ERROR = -1
_TRANSIENT_ERRORS = frozenset({_UNKNOWN_ERROR, 3, 5, 6, 7, 8, 9, 13, 56, 74, 75, 76, 78, 100, 103})
"""Errors after which another try may succeed, mostly with another leader (Kafka's protocol, "Error Codes")."""

_FETCH_WAIT_MS = 500
_BACK_OFF_S = 0.1
_RETRY_TIMEOUT_S = 30.0
_MAX_THROTTLE_S = 30.0

MAX_DECOMPRESSED_BYTES = 32 * 1024**2
"""Packed batches are handed on when they are together this large; one batch is never cut."""


@attrs.frozen
class FetchSettings:
    """How to read: `partition_bytes` a fetch at most, unless one batch is larger."""

    isolation: int = protocol.READ_COMMITTED
    partition_bytes: int = 16 * 1024**2


def fetch_records(clients: BrokerClient, wanted: OffsetRange, how: FetchSettings) -> Iterator[ConsumerRecords]:
    """Return the records of a range.

    Raises:
        RetriableError: brokers stayed away, or stuck, for half a minute.
        GapError: the range is gone.
        FatalError: we may not read it, or cannot.
    """
    fetches = _RangeFetcher(clients, wanted, how)
    try:
        yield from fetches
    finally:
        fetches.close()


class _RangeFetcher:
    """The fetches of one range, one ahead of what is worked on."""

    def __init__(self, clients: BrokerClient, wanted: OffsetRange, how: FetchSettings) -> None:
        self._clients, self._wanted, self._how = clients, wanted, how
        self._at = (wanted.topic, wanted.partition)
        self._place = f"{wanted.topic}-{wanted.partition}"
        self._next = wanted.start
        self._asked: HostPort | None = None
        self._failing_since: float | None = None

    def __iter__(self) -> Iterator[ConsumerRecords]:
        while self._next < self._wanted.end:
            found = self._receive()
            if found is None:
                continue
            first = self._next
            try:
                listed = list(parse_batches(found.data))
                self._advance(listed, found)
                self._fetch_ahead()
                for some in self._records(self._committed(listed, found), found.data, first):
                    yield ConsumerRecords.of_fetched(*self._at, some)
            except UnreadableRecords as error:
                raise FatalError(f"{self._place} from offset {first}: {error}") from error

    def close(self) -> None:
        """Leave no answer behind on the connection."""
        if self._asked is not None:
            self._clients.drop(self._asked)
            self._asked = None

    def _receive(self) -> FetchedPartition | None:
        """Return the next answer that is good; None when it has to be asked again."""
        try:
            if self._asked is None:
                self._ask()
            assert self._asked is not None
            throttle_ms, error, found = protocol.parse_fetch(self._clients.connection(self._asked).receive())
            self._asked = None
        except (OSError, RetriableError, struct.error) as failure:
            self.close()
            self._again(str(failure))
            return None
        one = found.get(self._at)
        if not error and one is None and throttle_ms:
            # A quota: the broker answers nothing, and listens again after this time (KIP-219).
            time.sleep(min(throttle_ms / 1000, _MAX_THROTTLE_S))
            return None
        return self._judged(one, error or (one.error if one else _UNKNOWN_ERROR))

    def _judged(self, one: FetchedPartition | None, code: int) -> FetchedPartition | None:
        if code == 0:
            return one
        reason = f"Kafka's error {code}"
        if code == _OFFSET_OUT_OF_RANGE:
            reason = self._explain_out_of_range()
        elif code not in _TRANSIENT_ERRORS:
            raise FatalError(f"{self._place} cannot be read from offset {self._next}: Kafka's error {code}")
        self._again(reason)
        return None

    def _explain_out_of_range(self) -> str:
        """Ask who leads now where the log begins: a broker that has just begun to lead, or leads no more, may err.

        Raises:
            GapError: it begins behind what is to be read.
        """
        self._clients.forget(self._at)
        host = None
        try:
            host = self._clients.leader(self._at)
            answer = self._clients.connection(host).ask(
                protocol.LIST_OFFSETS, protocol.encode_earliest_offset_request(self._at)
            )
            error, oldest = protocol.parse_earliest_offset(answer)
        except (OSError, RetriableError, struct.error) as failure:
            if host is not None:
                self._clients.drop(host)
            return f"the broker says that it is out of range, and nobody where the log begins: {failure}"
        if error:
            return f"the broker says that it is out of range, and Kafka's error {error} where the log begins"
        if oldest > self._next:
            gone = f"{self._place} offset {self._next}"
            raise GapError(f"records are gone from Kafka before they were read: {gone}; it begins at {oldest} now")
        return f"the broker says that it is out of range, though the log begins at offset {oldest}"

    def _ask(self) -> None:
        how = self._how
        host = self._clients.leader(self._at)
        body = protocol.encode_fetch_request({self._at: self._next}, how.isolation, _FETCH_WAIT_MS, how.partition_bytes)
        self._asked = host
        self._clients.connection(host).send(protocol.FETCH, body)

    def _fetch_ahead(self) -> None:
        if self._next < self._wanted.end:
            try:
                self._ask()
            except (OSError, RetriableError):
                self.close()  # it is asked again when its turn comes, with patience

    def _again(self, reason: str) -> None:
        self._clients.forget(self._at)
        self._check_retry_timeout(reason)
        time.sleep(_BACK_OFF_S)

    def _check_retry_timeout(self, reason: str) -> None:
        """Count the time since the first failure after the last progress."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > _RETRY_TIMEOUT_S:
            raise RetriableError(f"{self._place} stays unread at offset {self._next}: {reason}")

    def _advance(self, listed: list[RecordBatch], found: FetchedPartition) -> None:
        if not listed and len(found.data):
            raise UnreadableRecords("a fetch holds no whole record batch")
        if not listed:
            self._check_retry_timeout("the broker has nothing there")
            return
        if listed[-1].last < self._next:
            raise UnreadableRecords(f"a fetch ends at offset {listed[-1].last} already")
        self._next = listed[-1].last + 1
        self._failing_since = None

    def _committed(self, listed: list[RecordBatch], found: FetchedPartition) -> list[RecordBatch]:
        aborted = found.aborted if self._how.isolation == protocol.READ_COMMITTED else ()
        return drop_aborted(listed, aborted, found.data)

    def _records(self, found: list[RecordBatch], data: memoryview, first: int) -> Iterator[RecordColumns]:
        """Read the records of batches; packed ones some at a time, as they may be much larger than the fetch."""
        kept = [batch for batch in found if batch.last >= first and batch.base < self._wanted.end]
        if kept and not any(batch.is_compressed for batch in kept):
            sections = [BatchSection(b.start, b.end, b.count, b.base) for b in kept]
            yield read_records(data, sections, first, self._wanted.end)
            return
        parts: list[bytes | memoryview] = []
        sections, size = [], 0
        for batch in kept:
            parts.append(decompress(batch, data))
            sections.append(BatchSection(size, size + len(parts[-1]), batch.count, batch.base))
            size += len(parts[-1])
            if size >= MAX_DECOMPRESSED_BYTES or batch is kept[-1]:
                yield read_records(b"".join(parts), sections, first, self._wanted.end)
                parts, sections, size = [], [], 0
