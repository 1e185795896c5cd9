"""An offset range -> its records, in chunks of one fetch each; the next is on its way while one is worked on.

Exactly the records whose offsets are in the range and that are committed are given, in order. Offsets that are gone
from the middle (compaction, markers of transactions) are passed over; a range that is gone is an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.fetch import messages
from connector.kafka.fetch.batches import Batch, Unreadable, batches, committed, unpacked
from connector.kafka.fetch.client import Clients, Host
from connector.kafka.fetch.messages import Fetched
from connector.kafka.fetch.ranges import OffsetRange
from connector.kafka.fetch.records import Records, Section, records

_OUT_OF_RANGE = 1
_PASSING = frozenset({3, 5, 6, 7, 8, 9, 13, 56, 74, 75, 76, 78, 100, 103})
"""Errors after which another try may succeed, mostly with another leader (Kafka's protocol, "Error Codes")."""

_WAIT_MS = 500
_BACK_OFF_S = 0.1
_PATIENCE_S = 30.0


@attrs.frozen
class Reading:
    """How to read: `partition_bytes` a fetch at most, unless one batch is larger."""

    isolation: int = messages.READ_COMMITTED
    partition_bytes: int = 16 * 1024**2


@attrs.frozen(eq=False)
class Chunk:
    """Records of one topic-partition, in order of offsets."""

    topic: str
    partition: int
    records: Records


def chunks(clients: Clients, wanted: OffsetRange, how: Reading) -> Iterator[Chunk]:
    """Give the records of a range.

    Raises:
        RetriableError: brokers stayed away, or stuck, for half a minute.
        GapError: the range is gone.
        FatalError: we may not read it, or cannot.
    """
    fetches = _Fetches(clients, wanted, how)
    try:
        yield from fetches
    finally:
        fetches.close()


class _Fetches:
    """The fetches of one range, one ahead of what is worked on."""

    def __init__(self, clients: Clients, wanted: OffsetRange, how: Reading) -> None:
        self._clients, self._wanted, self._how = clients, wanted, how
        self._at = (wanted.topic, wanted.partition)
        self._place = f"{wanted.topic}-{wanted.partition}"
        self._next = wanted.start
        self._asked: Host | None = None
        self._heard = time.monotonic()

    def __iter__(self) -> Iterator[Chunk]:
        while self._next < self._wanted.end:
            found = self._received()
            if found is None:
                continue
            try:
                listed = list(batches(found.data))
                first = self._next
                self._advance(listed, found)
                if self._next < self._wanted.end:
                    self._ask()
                kept = [b for b in self._committed(listed, found) if b.last >= first and b.base < self._wanted.end]
                if kept:
                    yield Chunk(*self._at, self._records(kept, found.data, first))
            except Unreadable as error:
                raise FatalError(f"{self._place} from offset {self._next}: {error}") from error

    def close(self) -> None:
        """Leave no answer behind on the connection."""
        if self._asked is not None:
            self._clients.drop(self._asked)
            self._asked = None

    def _received(self) -> Fetched | None:
        """Give the next answer that is good; None when it has to be asked again."""
        try:
            if self._asked is None:
                self._ask()
            assert self._asked is not None
            error, found = messages.fetched(self._clients.connection(self._asked).receive())
            self._asked = None
        except (OSError, RetriableError) as failure:
            self.close()
            self._again(str(failure))
            return None
        one = found.get(self._at)
        code = error or (one.error if one else -1)
        if code == 0 and one is not None:
            return one
        if code == _OUT_OF_RANGE:
            raise GapError(f"records are gone from Kafka before they were read: {self._place} offset {self._next}")
        if code not in _PASSING:
            raise FatalError(f"{self._place} cannot be read from offset {self._next}: Kafka's error {code}")
        self._again(f"Kafka's error {code}")
        return None

    def _ask(self) -> None:
        how = self._how
        host = self._clients.leader(self._at)
        body = messages.fetch_request({self._at: self._next}, how.isolation, _WAIT_MS, how.partition_bytes)
        self._asked = host
        self._clients.connection(host).send(messages.FETCH, body)

    def _again(self, reason: str) -> None:
        if time.monotonic() - self._heard > _PATIENCE_S:
            raise RetriableError(f"{self._place} stays unread at offset {self._next}: {reason}")
        self._clients.forget(self._at)
        time.sleep(_BACK_OFF_S)

    def _advance(self, listed: list[Batch], found: Fetched) -> None:
        if listed:
            self._next = max(self._next, listed[-1].last + 1)
            self._heard = time.monotonic()
        elif len(found.data):
            raise FatalError(f"{self._place} offset {self._next}: a fetch holds no whole record batch")
        elif time.monotonic() - self._heard > _PATIENCE_S:
            raise RetriableError(f"{self._place} gives nothing from offset {self._next}; it should end later")

    def _committed(self, listed: list[Batch], found: Fetched) -> list[Batch]:
        aborted = found.aborted if self._how.isolation == messages.READ_COMMITTED else ()
        return committed(listed, aborted, found.data)

    def _records(self, kept: list[Batch], data: memoryview, first: int) -> Records:
        if not any(batch.packed for batch in kept):
            sections = [Section(b.start, b.end, b.count, b.base) for b in kept]
            return records(data, sections, first, self._wanted.end)
        parts = [unpacked(batch, data) for batch in kept]
        sections, start = [], 0
        for batch, part in zip(kept, parts, strict=True):
            sections.append(Section(start, start + len(part), batch.count, batch.base))
            start += len(part)
        return records(b"".join(parts), sections, first, self._wanted.end)
