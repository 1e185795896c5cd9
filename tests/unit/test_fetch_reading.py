"""Answers of brokers -> the records of a range, or the error that they mean: brokers that err are believed late."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import pytest

from connector.errors import GapError, RetriableError
from connector.kafka.consumer import fetcher, protocol
from connector.kafka.consumer.broker_client import BrokerClient
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.protocol import ResponseReader
from tests.model.record_batches import Record, batch

HOST = ("broker", 1)


class Broker:
    """The brokers of a cluster as one: gives scripted answers, by what is asked, and keeps the last of each kind."""

    def __init__(self, fetches: Sequence[bytes], oldest: Sequence[tuple[int, int]]) -> None:
        self._answers = {protocol.FETCH: list(fetches), protocol.LIST_OFFSETS: [listed(*one) for one in oldest]}
        self._asked: list[tuple[int, int]] = []
        self.forgotten = 0

    def leader(self, at: protocol.TopicPartition) -> tuple[str, int]:
        """It leads everything."""
        return HOST

    def forget(self, at: protocol.TopicPartition) -> None:
        """Counts how often somebody doubts that."""
        self.forgotten += 1

    def connection(self, host: tuple[str, int]) -> Broker:
        """It is its own connection."""
        return self

    def drop(self, host: tuple[str, int]) -> None:
        """What was asked is not answered any more."""
        self._asked.clear()

    def send(self, kind: tuple[int, int], body: bytes) -> None:
        """Takes a question."""
        self._asked.append(kind)

    def receive(self) -> ResponseReader:
        """Gives the next answer of that kind."""
        left = self._answers[self._asked.pop(0)]
        return ResponseReader(memoryview(left.pop(0) if len(left) > 1 else left[0]))

    def ask(self, kind: tuple[int, int], body: bytes) -> ResponseReader:
        """Both in one."""
        self.send(kind, body)
        return self.receive()


def fetched(error: int, data: bytes = b"") -> bytes:
    """An answer to a fetch of t-0."""
    head = struct.pack(">ihii", 0, 0, 0, 1) + protocol.encode_text("t") + struct.pack(">i", 1)
    return head + struct.pack(">ihqqqiii", 0, error, 9, 9, 0, 0, -1, len(data)) + data


def listed(error: int, offset: int) -> bytes:
    """An answer to who asks where the log of t-0 begins."""
    return struct.pack(">ii", 0, 1) + protocol.encode_text("t") + struct.pack(">iihqq", 1, 0, error, -1, offset)


def read(broker: Broker, start: int, end: int) -> list[int]:
    """The offsets of what is read."""
    chunks = fetcher.fetch_records(
        cast("BrokerClient", cast("Any", broker)), OffsetRange("t", 0, start, end), fetcher.FetchSettings()
    )
    return [offset for chunk in chunks for offset in chunk.offset.tolist()]


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "_BACK_OFF_S", 0.0)


GOOD = fetched(0, batch([Record(5, b"k", b"v"), Record(6, b"k", b"w")], 5, 6))
OUT_OF_RANGE = fetched(1)


def test_out_of_range_is_no_gap_while_the_log_has_the_records() -> None:
    """However often brokers say so while they change their roles: the records are there, and are read."""
    broker = Broker([OUT_OF_RANGE] * 5 + [GOOD], [(6, -1), (0, 0), (5, -1), (0, 5), (0, 3)])
    assert read(broker, 5, 7) == [5, 6]
    assert broker.forgotten >= 5


def test_what_the_leader_has_removed_is_a_gap() -> None:
    """Where the log begins behind the offset, the records are gone, and the message says where it begins."""
    with pytest.raises(GapError, match=r"gone .* t-0 offset 5; it begins at 8 now"):
        read(Broker([OUT_OF_RANGE], [(0, 8)]), 5, 7)


def test_a_broker_that_stays_at_it_is_an_error_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for lost that the leader does not call lost; after half a minute the batch is tried anew."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", -1.0)
    with pytest.raises(RetriableError, match=r"out of range, though the log begins at offset 2"):
        read(Broker([OUT_OF_RANGE], [(0, 2)]), 5, 7)
