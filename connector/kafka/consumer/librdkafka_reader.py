"""An offset range -> its records, by librdkafka: the second reader, for what ours cannot do, with the same contract.

librdkafka makes an object per record: about five times the cost of `consumer.fetcher`. It knows logins that ours does
not (Kerberos), and brokers that are too old for it. It does not tell where a record batch ends that it cannot read, or
even that there is one: our own protocol is asked then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import attrs
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.client_errors import is_transient_error
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.fetcher import FetchSettings
from connector.kafka.consumer.leader_epochs import check_epoch, is_known_epoch
from connector.kafka.consumer.librdkafka_consumers import OpenConsumer, consumer_for
from connector.kafka.consumer.librdkafka_records import to_columns
from connector.kafka.consumer.log_bounds import compare_bounds, compare_end
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.raw_batches import find_unreadable
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch
from connector.kafka.kept_client import KeptClient
from connector.kafka.protocol.error_codes import BROKER_REMEDY, LOGIN_REMEDY

RETRY_TIMEOUT_S = 30.0
_POLL_S, _POLL_RECORDS = 0.2, 2_000
_QUERY_S, _SILENT_QUERY_S, _PAUSE_S = 10.0, 2.0, 0.2
LOOK_S = 4.0
"""After so long without a record the next batch is looked at: of some that it cannot read librdkafka says nothing."""

_LEAP_BYTES = 1 << 20
"""So much of the batches that librdkafka passed over at the end of a range is looked at."""

_MAX_FAULTS = 2
"""How often a batch that only librdkafka refuses is fetched again, as the network or a replica may be to blame."""
_GAPS = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})  # noqa: SLF001
_UNREADABLE = frozenset(
    {
        KafkaError._BAD_MSG,  # noqa: SLF001
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
        KafkaError.INVALID_MSG,
        KafkaError.MSG_SIZE_TOO_LARGE,
    }
)
"""What librdkafka says of a record batch that it cannot read."""


def read_range(
    address: ClusterAddress, wanted: OffsetRange, how: FetchSettings, meter: FetchMeter | None = None
) -> Iterator[ConsumerRecords]:
    """Return the records of a range; in place of a batch that cannot be read, a chunk that says so.

    Raises:
        RetriableError: brokers stayed away for half a minute, or cannot tell now where a leader epoch ends.
        GapError: the range is gone, or the log was cut.
        FatalError: we may not read it, or librdkafka cannot read what our own reader can, or can look at.
    """
    kept = consumer_for(address, how)
    reader = _RangeReader(kept.client, address, wanted, how, meter or FetchMeter())
    kept.users += 1
    try:
        check_epoch(address, wanted)
        yield from reader
    finally:
        kept.users -= 1
        reader.close()


class _RangeReader:
    """The records of one range, some at a time."""

    def __init__(
        self,
        client: KeptClient[OpenConsumer],
        address: ClusterAddress,
        wanted: OffsetRange,
        how: FetchSettings,
        meter: FetchMeter,
    ) -> None:
        self._client, self._wanted, self._how, self._meter = client, wanted, how, meter
        self._open = client.get()
        self._open.refusals.clear()
        self._renewed = self._leaps = False
        self._leapt_from = wanted.end
        self._address = address
        self._place = f"{wanted.topic}-{wanted.partition}"
        self._next = wanted.start
        self._progress_at = self._looked_at = time.monotonic()
        self._fault: KafkaError | None = None
        self._faults = 0
        meter.readers.add("librdkafka")

    def __iter__(self) -> Iterator[ConsumerRecords]:
        waiting: list[Message] = []
        size = 0
        self._assign()
        while self._next < self._wanted.end:
            found = self._poll()
            waiting += found
            size += sum(map(len, found))
            unreadable = self._find_unreadable()
            if waiting and (unreadable or size >= self._how.partition_bytes):
                yield self._to_records(waiting)
                waiting, size = [], 0
            if unreadable:
                yield ConsumerRecords.of_unreadable(self._wanted.topic, self._wanted.partition, unreadable)
        if waiting:
            yield self._to_records(waiting)

    def close(self) -> None:
        """Read no further; the client stays for the next range."""
        with suppress(RuntimeError):  # it was closed, and no other could be made
            self._open.consumer.unassign()

    def _assign(self) -> None:
        """Read from the next offset on; the epoch is that of the record in front of it, if it is known."""
        epoch = self._wanted.epoch if self._next == self._wanted.start else -1
        leader_epoch = {"leader_epoch": epoch} if epoch >= 0 else {}
        self._open.consumer.assign(
            [TopicPartition(self._wanted.topic, self._wanted.partition, self._next, **leader_epoch)]
        )

    def _poll(self) -> list[Message]:
        """Return what has come of the range, and note how far that is; raises what errors mean."""
        began = time.monotonic()
        found = []
        for message in self._open.consumer.consume(_POLL_RECORDS, _POLL_S):
            error = message.error()
            if message.topic() != self._wanted.topic or message.partition() != self._wanted.partition:
                continue
            offset = message.offset()
            if error is None:
                if self._is_leap(offset):
                    break
                if self._next <= offset < self._wanted.end:
                    found.append(message)
                self._advance(offset + 1)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._advance(offset)
            elif error.code() in _UNREADABLE:
                # What comes behind it is not passed on to: somebody has to hear of the batch.
                self._fault = error
                break
            else:
                self._judge(error)
        if self._open.refusals and not found:
            self._renew_login(self._open.refusals[-1])
        self._meter.wait_s += 0.0 if found else time.monotonic() - began
        self._meter.fetches += bool(found)
        return found

    def _is_leap(self, offset: int) -> bool:
        """Tell whether a record is behind the range before all of that was read: who has the batches has to say why.

        librdkafka believes a record's offset, though it may be none of its batch.

        Raises:
            FatalError: records come that are in front of others that came.
        """
        if self._leapt_from <= offset < self._next:
            raise FatalError(
                f"{self._place}: librdkafka gives offset {offset} after {self._next - 1}: a record batch there has "
                "offsets that are not its own; the native reader tells which (consumer.reader)"
            )
        if offset > self._next:
            self._leapt_from = self._next
        self._leaps = offset >= self._wanted.end and self._leapt_from == self._next
        return self._leaps

    def _look_at_leap(self) -> UnreadableBatch | None:
        """Return the batch that cannot be read at the next offset; without one, what is left of the range is empty.

        Raises:
            FatalError: records are there that librdkafka left out.
        """
        self._leaps, how, rest = False, self._how, attrs.evolve(self._wanted, start=self._next)
        try:
            found, preceded = find_unreadable(self._address, rest, how.isolation, _LEAP_BYTES, how.max_unpacked_bytes)
        except (RetriableError, FatalError):
            found, preceded = None, False  # nobody else can look
        if preceded:
            raise FatalError(
                f"{self._place} offset {self._next} cannot be read by librdkafka: it passes over records that are "
                "there; the native reader can read them (consumer.reader)"
            )
        self._advance(self._wanted.end if found is None else found.last + 1)
        self._assign()
        return found

    def _renew_login(self, refusal: str) -> None:
        """Go on by another client, whose token is a fresh one: the one before may have been revoked.

        Raises:
            FatalError: that was refused too.
        """
        if self._renewed:
            raise FatalError(f"{self._place}: the broker refuses the login: {refusal}; {LOGIN_REMEDY}")
        if self._client.renew_login():
            self._renewed, self._open = True, self._client.get()
            self._meter.retries += 1
            self._assign()

    def _find_unreadable(self) -> UnreadableBatch | None:
        """Look at the batch that is next by our own protocol, where librdkafka refuses it or has been silent for long.

        It tells neither where such a batch ends nor, of some, that there is one. What both cannot read is passed over.
        Before the time is over all that librdkafka may have fetched is looked at, once: that costs as much.

        Raises:
            RetriableError: it has been silent for half a minute, and nobody knows why.
            FatalError: only librdkafka cannot read it, or nobody else can look.
        """
        if self._next >= self._wanted.end:
            return None
        if self._leaps:
            return self._look_at_leap()
        now = time.monotonic()
        over = now - self._progress_at > RETRY_TIMEOUT_S
        if not (self._fault or over or now - max(self._progress_at, self._looked_at) > LOOK_S):
            return None
        found = self._look(self._how.partition_bytes if over else 1)
        if over and found is None:
            reason = self._explain_silence()
            raise RetriableError(f"{self._place} stays unread at offset {self._next}: {reason}")
        return found

    def _explain_silence(self) -> str:
        """Return why nothing may have come. Raises GapError where the log has lost what is asked for."""
        at = (self._wanted.topic, self._wanted.partition)
        silent = "; ".join(["librdkafka gives nothing", *self._open.refusals])
        try:
            bounds = self._open.consumer.get_watermark_offsets(TopicPartition(*at), timeout=_SILENT_QUERY_S)
        except KafkaException:
            return silent
        if bounds is None or min(bounds) < 0:
            return silent
        wanted = (self._next, self._wanted.end)
        return f"{silent}: {compare_end(at, wanted, bounds, time.monotonic() - self._progress_at)}"

    def _look(self, most_bytes: int) -> UnreadableBatch | None:
        fault, self._fault, self._looked_at = self._fault, None, time.monotonic()
        how, rest = self._how, attrs.evolve(self._wanted, start=self._next)
        try:
            unreadable = find_unreadable(self._address, rest, how.isolation, most_bytes, how.max_unpacked_bytes)
        except (RetriableError, FatalError) as unknown:
            if fault is not None:
                self._raise_fault(fault, f"nobody else can look at it: {unknown}")
            return None
        found, preceded = unreadable
        if found is None or preceded:
            self._try_again(fault, found)
            return None
        self._advance(found.last + 1)
        self._assign()
        return found

    def _try_again(self, fault: KafkaError | None, later: UnreadableBatch | None) -> None:
        """Ask again for the next batch, which can be read.

        Raises:
            FatalError: librdkafka refuses it for good, or gives nothing in front of a batch on which it may never end.
        """
        if fault is not None:
            self._faults += 1
            if self._faults > _MAX_FAULTS:
                self._raise_fault(fault, "the native reader can read it (consumer.reader)")
            self._meter.retries += 1
            self._assign()
        elif later is not None:
            raise FatalError(
                f"{self._place} offset {self._next} stays unread: librdkafka gives nothing before the record "
                f"batch of offsets {later.first} to {later.last}, which cannot be read: {later.reason}; the native "
                "reader continues after it (consumer.reader)"
            )

    def _raise_fault(self, fault: KafkaError, why: str) -> None:
        place = f"{self._place} offset {self._next}"
        raise FatalError(f"{place} cannot be read by librdkafka: {fault.name()}: {fault.str()}; {why}")

    def _advance(self, behind: int) -> None:
        if behind > self._next:
            self._next, self._progress_at = behind, time.monotonic()
            self._faults, self._renewed = 0, False

    def _judge(self, error: KafkaError) -> None:
        """Raise what an error means; pass over one that may go away."""
        place = f"{self._place} offset {self._next}"
        if error.code() in _GAPS:
            self._judge_range(place, error)
        elif not is_transient_error(error):
            raise FatalError(f"{place} cannot be read: {error.name()}: {error.str()}; {BROKER_REMEDY}")
        self._meter.retries += 1

    def _judge_range(self, place: str, error: KafkaError) -> None:
        """Raise what an offset out of range means; ask again, after a pause, where the log may have it after all."""
        if error.code() == KafkaError._LOG_TRUNCATION:  # noqa: SLF001
            raise GapError(
                f"{place}: the log was cut by an unclean leader election: {error.str()}; icebridge offsets reset "
                "says how to continue"
            )
        at = (self._wanted.topic, self._wanted.partition)
        try:
            oldest, end = self._open.consumer.get_watermark_offsets(TopicPartition(*at), timeout=_QUERY_S)
        except KafkaException as unknown:
            raise RetriableError(
                f"{place} is out of range, and no broker says where the log begins and ends: {unknown}"
            ) from unknown
        compare_bounds(at, self._next, (oldest, end), time.monotonic() - self._progress_at)
        time.sleep(_PAUSE_S)
        self._assign()

    def _to_records(self, messages: Sequence[Message]) -> ConsumerRecords:
        columns, at = to_columns(messages), (self._wanted.topic, self._wanted.partition)
        self._meter.size_bytes += int(columns.key.nbytes + columns.value.nbytes)
        epoch = messages[-1].leader_epoch()
        if epoch is not None and is_known_epoch(self._address, self._wanted, epoch):
            self._meter.note_epoch(at, int(columns.offset[-1]), epoch)
        return ConsumerRecords.of_fetched(*at, columns)
