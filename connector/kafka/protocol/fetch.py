"""An offset -> a Fetch request, and what a broker sends of a topic-partition from there on (pure).

Source: Kafka's protocol documentation, "Fetch API".
"""

from __future__ import annotations

import struct

import attrs

from connector.kafka.protocol import api_versions
from connector.kafka.protocol.primitives import ResponseReader, encode_text
from connector.kafka.protocol.requests import READ_COMMITTED, UNKNOWN_EPOCH
from connector.runtime.topic_partitions import TopicPartition

_CONSUMER = -1
_NO_SESSION, _FINAL_EPOCH = 0, -1
"""Fetch sessions (KIP-227) are not used: a range is read by few, large fetches."""


@attrs.frozen
class AbortedTransaction:
    """A transaction that was given up, from its first offset on."""

    producer: int
    first: int


@attrs.frozen
class FetchedPartition:
    """What a broker sent of one topic-partition.

    `high_watermark` is where its replicated part ends, -1 if unknown; `replica` the broker that should be asked
    instead (KIP-392), -1 for none. `stable` is where the first transaction begins that is still open, else the high
    watermark; -1 if unknown.
    """

    error: int
    high_watermark: int
    aborted: tuple[AbortedTransaction, ...]
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
    aborted = tuple(AbortedTransaction(*row) for row in answer.rows("qq"))
    replica = answer.number("i") if version >= 11 else -1
    data = answer.read_bytes(answer.number("i"))
    return partition, FetchedPartition(error, high_watermark, aborted, replica, data, stable)
