"""An offset range -> its records, in chunks of one fetch each; the next is on its way while one is worked on.

Exactly the records whose offsets are in the range and that are committed are given, in order. Offsets that are gone
from the middle (compaction, markers of transactions) are passed over; a range that is gone is an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
import numpy as np

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import HostPort
from connector.kafka.brokers.backoff import pause_s
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.brokers.connection import BrokerConnection
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.log_bounds import check_bounds, check_end, check_truncation
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.records.batch_reader import read_batches
from connector.kafka.consumer.records.record_batches import (
    RecordBatches,
    bound_last,
    check_leaps,
    drop_aborted,
    parse_batches,
)
from connector.kafka.consumer.records.unreadable_records import BATCH_REMEDY, UnreadableBatch, UnreadableRecords
from connector.kafka.protocol.error_codes import (
    BROKER_REMEDY,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
    is_transient,
    name_error,
)
from connector.kafka.protocol.fetch import AbortedTransactions, FetchedPartition, FetchRequest
from connector.kafka.protocol.requests import READ_COMMITTED
from connector.runtime.topic_partitions import TopicPartition
from connector.settings.kafka.reading import DEFAULT_MAX_UNPACKED_BYTES
from serde.arrays import Ints

_RETRY_TIMEOUT_S = 30.0
_MAX_THROTTLE_S = 30.0
_NOTHING_THERE_S = 2.0
"""So long a broker may have nothing where records are; then somebody is asked who leads."""

_LEAST_WAIT_S = 0.05
"""So long the next question waits where a broker has nothing and says so at once, as with `fetch.max.wait.ms=0`."""

_MAX_REFETCHES = 2
"""How often a batch that is not as it was written is fetched again, as the network or a replica may be to blame."""


_SPARE_SHARE, _SPARE_BYTES = 1.15, 1 << 16
"""More than the rest of a range seems to take: records vary, and the last batch comes whole or not at all."""

_MAX_FETCH_BYTES = 1 << 29
"""Most that a fetch asks for, whatever is set: a connection takes twice as much, and one batch comes in any size."""

_MAX_KNOWN = 10_000

_record_bytes: dict[TopicPartition, float] = {}
"""What a record took in the last fetch of each topic-partition by this process, which reads them batch after batch."""


@attrs.frozen
class FetchSettings:
    """How to read: `partition_bytes` a fetch at most, unless one batch is larger; it unpacks to so much at most."""

    isolation: int = READ_COMMITTED
    partition_bytes: int = 16 * 1024**2
    max_wait_ms: int = 500
    max_unpacked_bytes: int = DEFAULT_MAX_UNPACKED_BYTES


def fetch_records(
    clients: BrokerClient, wanted: OffsetRange, how: FetchSettings, meter: FetchMeter | None = None
) -> Iterator[ConsumerRecords]:
    """Return the records of a range; in place of a batch that cannot be read, a chunk that says so.

    Raises:
        RetriableError: brokers stayed away, or stuck, for half a minute.
        GapError: the range is gone.
        FatalError: we may not read it, or cannot.
    """
    fetches = _RangeFetcher(clients, wanted, how, meter or FetchMeter())
    try:
        yield from fetches
    finally:
        fetches.close()


class _RangeFetcher:
    """The fetches of one range, one ahead of what is worked on."""

    def __init__(self, clients: BrokerClient, wanted: OffsetRange, how: FetchSettings, meter: FetchMeter) -> None:
        self._clients, self._wanted, self._how, self._meter = clients, wanted, how, meter
        self._at = (wanted.topic, wanted.partition)
        self._place = f"{wanted.topic}-{wanted.partition}"
        self._next, self._epoch = wanted.start, wanted.epoch
        self._asked: tuple[BrokerConnection, FetchRequest] | None = None
        self._asked_at = 0.0
        self._failing_since: float | None = None
        self._failures = 0
        self._checked_epoch = self._leader_epoch = -1
        self._refetches = self._least_bytes = 0
        meter.readers.add("native")

    def __iter__(self) -> Iterator[ConsumerRecords]:
        while self._next < self._wanted.end:
            found = self._receive()
            if found is None:
                continue
            first = self._next
            try:
                listed = self._parse(found)
                if listed is None:
                    continue
                self._advance(listed, found)
                self._fetch_ahead()
                yield from self._read(listed, found, first)
            except UnreadableRecords as error:
                raise FatalError(f"{self._place} from offset {first}: {error}; {BATCH_REMEDY}") from error

    def _read(self, listed: RecordBatches, found: FetchedPartition, first: int) -> Iterator[ConsumerRecords]:
        kept, limit = self._select_committed(listed, found), self._how.max_unpacked_bytes
        for some in read_batches(kept, found.data, first, self._wanted.end, limit):
            if isinstance(some, UnreadableBatch):
                yield ConsumerRecords.of_unreadable(*self._at, some)
            else:
                yield ConsumerRecords.of_fetched(*self._at, some)

    def _parse(self, found: FetchedPartition) -> RecordBatches | None:
        """Return the batches; None where they are not as they were written, and have to be fetched again.

        Raises:
            UnreadableRecords: nobody can tell where one begins or ends.
        """
        listed = None
        try:
            listed = parse_batches(found.data)
            check_leaps(listed, self._next, found.high_watermark)
            if len(listed) and listed.last[-1] < self._next:
                raise UnreadableRecords(f"a fetch ends at offset {listed.last[-1]} already")
            wrong = next(iter(listed.faults.values()), "")
        except UnreadableRecords as error:
            if self._refetches >= _MAX_REFETCHES:
                raise
            wrong = str(error)
        if listed is not None and (not wrong or self._refetches >= _MAX_REFETCHES):
            self._refetches = self._least_bytes = 0
            return bound_last(listed, found.high_watermark)
        self._refetches += 1
        if listed is not None and listed.is_open:
            self._least_bytes = len(found.data) + (_SPARE_BYTES << 4 * self._refetches)  # what follows tells its end
        self._again(wrong)
        return None

    def close(self) -> None:
        """Leave no answer behind on the connection."""
        if self._asked is not None:
            self._clients.drop(self._asked[0].host)
            self._asked = None

    def _receive(self) -> FetchedPartition | None:
        """Return the next answer that is good; None when it has to be asked again."""
        began = time.monotonic()
        try:
            if self._asked is None:
                self._ask()
            assert self._asked is not None
            connection, request = self._asked
            answer = connection.receive(request)
            self._asked = None
        except (OSError, RetriableError) as failure:
            self.close()
            self._again(str(failure))
            return None
        finally:
            self._meter.wait_s += time.monotonic() - began
        self._meter.fetches += 1
        self._meter.throttle_ms += answer.throttle_ms
        one = answer.partition
        if not answer.error and one is None and answer.throttle_ms:
            # A quota: the broker answers nothing, and listens again after this time (KIP-219).
            time.sleep(min(answer.throttle_ms / 1000, _MAX_THROTTLE_S))
            return None
        if one is not None and one.replica >= 0 and not request.rack:
            one = attrs.evolve(one, replica=-1)  # Nobody asked for a nearer one.
        return self._judge(one, answer.error or (one.error if one else UNKNOWN_ERROR), connection.host)

    def _judge(self, one: FetchedPartition | None, code: int, host: HostPort) -> FetchedPartition | None:
        if code == 0 and one is not None:
            if len(one.data) or one.replica < 0:
                return one
            self._clients.prefer(self._at, one.replica)  # it is asked (KIP-392)
            return None
        reason = name_error(code)
        if code == OFFSET_OUT_OF_RANGE:
            reason = self._explain_out_of_range(host)
        elif code == UNSUPPORTED_COMPRESSION_TYPE:
            raise FatalError(
                f"{self._place} is compressed by zstd, which its broker sends from Kafka 2.1 on only; upgrade the "
                "broker, or have the topic compressed otherwise (compression.type)"
            )
        elif not is_transient(code):
            raise FatalError(f"{self._place} cannot be read from offset {self._next}: {reason}; {BROKER_REMEDY}")
        self._again(reason)
        return None

    def _explain_out_of_range(self, host: HostPort) -> str:
        """Ask the leader for the bounds of its log; a replica, or a leader of yesterday, may err."""
        is_leader = host == self._clients.leader(self._at).host
        self._clients.forget(self._at)
        if not is_leader:
            return f"{name_error(OFFSET_OUT_OF_RANGE)}, by a broker that does not lead"
        return check_bounds(self._clients, self._at, self._next, self._fails_for_s)

    def _ask(self) -> None:
        leader = self._clients.leader(self._at)
        if leader.epoch > self._epoch >= 0 and leader.epoch != self._checked_epoch:
            check_truncation(self._clients, self._at, self._next, self._epoch)
            self._checked_epoch = leader.epoch
        host = self._clients.source(self._at)
        request = FetchRequest(
            at=self._at,
            offset=self._next,
            isolation=self._how.isolation,
            max_wait_ms=self._how.max_wait_ms,
            max_bytes=self._estimate_bytes(),
            leader_epoch=leader.epoch,
            rack=self._clients.rack(self._at) if host == leader.host else "",
        )
        connection = self._clients.connection(host)
        self._asked, self._leader_epoch = (connection, request), leader.epoch
        self._asked_at = time.monotonic()
        connection.send(request)

    def _estimate_bytes(self) -> int:
        """Estimate what is left of the range: what a broker sends beyond it is sent, received and checked in vain."""
        most, each = self._how.partition_bytes, _record_bytes.get(self._at)
        if each is not None:
            most = min(most, int((self._wanted.end - self._next) * each * _SPARE_SHARE) + _SPARE_BYTES)
        return min(max(most, self._least_bytes), _MAX_FETCH_BYTES)

    def _fetch_ahead(self) -> None:
        if self._next < self._wanted.end:
            try:
                self._ask()
            except (OSError, RetriableError):
                self.close()  # it is asked again when its turn comes, with patience

    def _again(self, reason: str) -> None:
        self._clients.forget(self._at)
        self._meter.retries += 1
        self._failures += 1
        self._check_retry_timeout(reason)
        seconds = self._clients.address.seconds
        time.sleep(pause_s(self._failures, seconds("retry.backoff.ms"), seconds("retry.backoff.max.ms")))

    @property
    def _fails_for_s(self) -> float:
        """The time since the first failure after the last progress."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    def _check_retry_timeout(self, reason: str) -> None:
        self._failing_since = self._failing_since or time.monotonic()
        if self._fails_for_s > _RETRY_TIMEOUT_S:
            raise RetriableError(f"{self._place} stays unread at offset {self._next}: {reason}")

    def _advance(self, listed: RecordBatches, found: FetchedPartition) -> None:
        self._meter.size_bytes += len(found.data)
        if not len(listed) and len(found.data):
            raise UnreadableRecords("a fetch holds no whole record batch")
        if not len(listed):
            self._wait_for_more(found)
            return
        last, epochs = int(listed.last[-1]), self._believe_epochs(listed)
        if len(_record_bytes) >= _MAX_KNOWN:
            _record_bytes.clear()
        _record_bytes[self._at] = len(found.data) / (last + 1 - int(listed.base[0]))
        self._meter.note_epoch(self._at, min(last + 1, self._wanted.end) - 1, self._epoch_at(listed, epochs))
        self._next, self._epoch = last + 1, max(self._epoch, int(epochs[-1])) if epochs[-1] >= 0 else -1
        self._failing_since, self._failures = None, 0

    def _wait_for_more(self, found: FetchedPartition) -> None:
        """Go on to ask: what is compacted, or only marks transactions, comes as batches too, and none came.

        Raises:
            RetriableError: it has lasted too long.
            GapError: the leader's log has lost what is asked for.
        """
        self._failing_since = self._failing_since or time.monotonic()
        is_held_back = 0 <= found.stable <= self._next < found.high_watermark
        if is_held_back and self._how.isolation == READ_COMMITTED:
            reason = f"a transaction is open from offset {found.stable} on, and holds back what comes after it"
        elif self._fails_for_s > _NOTHING_THERE_S:
            # A replica that lags, or a leader that was cut off and knows of no later one, may say so for ever.
            self._clients.forget(self._at)
            reason = check_end(self._clients, self._at, self._next, self._wanted.end, self._fails_for_s)
        else:
            reason = f"the broker has nothing there; its log ends at {found.high_watermark}"
        self._check_retry_timeout(reason)
        time.sleep(max(self._asked_at + _LEAST_WAIT_S - time.monotonic(), 0.0))

    def _select_committed(self, listed: RecordBatches, found: FetchedPartition) -> RecordBatches:
        aborted = found.aborted if self._how.isolation == READ_COMMITTED else AbortedTransactions()
        return drop_aborted(listed, aborted, found.data)

    def _believe_epochs(self, listed: RecordBatches) -> Ints:
        """Return the batches' leader epochs, -1 for one that is greater than their leader's: no checksum covers them.

        With one that is too great no later cut of the log would be noticed.
        """
        known = self._leader_epoch if self._leader_epoch >= 0 else int(listed.epoch.max())
        return np.where(listed.epoch > known, -1, listed.epoch)

    def _epoch_at(self, listed: RecordBatches, epochs: Ints) -> int:
        """Return the leader epoch of the last batch that begins in front of the range's end; -1 if it is not known."""
        inside = epochs[listed.base < self._wanted.end]
        return max(self._epoch, int(inside.max())) if len(inside) and inside[-1] >= 0 else -1
