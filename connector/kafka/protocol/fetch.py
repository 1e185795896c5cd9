"""An offset -> a Fetch request, and what a broker sends of a topic-partition from there on (pure).

Source: Kafka's protocol documentation, "Fetch API".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import attrs
import numpy as np

from connector.kafka.protocol import api_versions
from connector.kafka.protocol.primitives import ResponseReader, encode_text
from connector.kafka.protocol.requests import READ_COMMITTED, UNKNOWN_EPOCH
from connector.runtime.topic_partitions import TopicPartition
from serde.arrays import Ints

_CONSUMER = -1
_ABORTED_BYTES = 16
_ROWS_AT_ONCE = 1 << 20
_NO_SESSION, _FINAL_EPOCH = 0, -1
"""Fetch sessions (KIP-227) are not used: a range is read by few, large fetches."""


@attrs.frozen(eq=False)
class AbortedTransactions:
    """Transactions that were given up: the producer of each, and its first offset. Columns: a broker may send any."""

    producer: Ints = attrs.field(factory=lambda: np.zeros(0, np.int64))
    first: Ints = attrs.field(factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.first)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int]]) -> AbortedTransactions:
        """Take a few, each as producer and first offset."""
        columns = np.array(rows, np.int64).reshape(-1, 2)
        return cls(columns[:, 0], columns[:, 1])

    def of_producers(self, wanted: Ints) -> AbortedTransactions:
        """Return those of some producers, in order of their first offsets; of a part at a time, as all may be many."""
        places = [
            start + np.flatnonzero(np.isin(self.producer[start : start + _ROWS_AT_ONCE], wanted))
            for start in range(0, len(self), _ROWS_AT_ONCE)
        ]
        found = np.concatenate(places) if places else np.zeros(0, np.int64)
        found = found[np.argsort(self.first[found], kind="stable")]
        return AbortedTransactions(self.producer[found], self.first[found])


@attrs.frozen
class FetchedPartition:
    """What a broker sent of one topic-partition.

    `high_watermark` is where its replicated part ends, -1 if unknown; `replica` the broker that should be asked
    instead (KIP-392), -1 for none. `stable` is where the first transaction begins that is still open, else the high
    watermark; -1 if unknown.
    """

    error: int
    high_watermark: int
    aborted: AbortedTransactions
    replica: int
    data: memoryview
    stable: int = -1


@attrs.frozen
class FetchResponse:
    """An answer to a fetch: error code of the whole, how long the quota asks to wait (ms), and the topic-partition.

    The broker leaves the topic-partition out while it throttles.
    """

    error: int
    throttle_ms: int
    partition: FetchedPartition | None


@attrs.frozen
class FetchRequest:
    """Asks for records of a topic-partition from an offset on; at least one batch comes, however large it is."""

    at: TopicPartition
    offset: int
    isolation: int = READ_COMMITTED
    max_wait_ms: int = 500
    max_bytes: int = 1
    min_bytes: int = 1
    leader_epoch: int = UNKNOWN_EPOCH
    rack: str = ""
    api = api_versions.FETCH

    def encode(self, version: int) -> bytes:
        """Return the body."""
        body = struct.pack(">iiiib", _CONSUMER, self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation)
        if version >= 7:
            body += struct.pack(">ii", _NO_SESSION, _FINAL_EPOCH)
        body += struct.pack(">i", 1) + encode_text(self.at[0]) + struct.pack(">ii", 1, self.at[1])
        if version >= 9:
            body += struct.pack(">i", self.leader_epoch)
        body += struct.pack(">q", self.offset)
        if version >= 5:
            body += struct.pack(">q", -1)  # where a replica's log begins
        body += struct.pack(">i", self.max_bytes)
        if version >= 7:
            body += struct.pack(">i", 0)  # topics that leave the session
        return body + (encode_text(self.rack) if version >= 11 else b"")

    def parse(self, version: int, answer: ResponseReader) -> FetchResponse:
        """Read the response."""
        throttle_ms, error = max(answer.number("i"), 0), 0
        if version >= 7:
            error, _ = answer.numbers("hi")
        found = None
        for _ in range(answer.count()):
            topic = answer.text()
            for _ in range(answer.count()):
                partition, one = _parse_partition(version, answer)
                found = one if (topic, partition) == self.at else found
        return FetchResponse(error, throttle_ms, found)


def _parse_partition(version: int, answer: ResponseReader) -> tuple[int, FetchedPartition]:
    partition, error, high_watermark, stable = answer.numbers("ihqq")
    if version >= 5:
        answer.skip("q")  # where the log begins
    rows = np.frombuffer(answer.read_bytes(_ABORTED_BYTES * answer.count()), ">i8").reshape(-1, 2)
    aborted = AbortedTransactions(rows[:, 0], rows[:, 1])
    replica = answer.number("i") if version >= 11 else -1
    data = answer.read_bytes(answer.number("i"))
    return partition, FetchedPartition(error, high_watermark, aborted, replica, data, stable)
