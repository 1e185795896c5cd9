"""Requests and answers of Kafka's protocol that reading needs, as bytes (pure).

Metadata v5, Fetch v11, ListOffsets v2, SaslHandshake v1, SaslAuthenticate v0: every broker from 2.3 to 4.x has these
versions.
Source: Kafka's protocol documentation, "The Messages".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import attrs

from connector.kafka.consumer.record_batches import AbortedTransaction
from connector.runtime.topic_partitions import TopicPartition

FETCH, LIST_OFFSETS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = (1, 11), (2, 2), (3, 5), (17, 1), (36, 0)
READ_COMMITTED, READ_UNCOMMITTED = 1, 0
_EARLIEST_TIMESTAMP = -2
"""Stands for the log's beginning in place of a time."""


@attrs.frozen
class FetchedPartition:
    """What a broker gave of one topic-partition."""

    error: int
    aborted: tuple[AbortedTransaction, ...]
    data: memoryview


@attrs.frozen
class ClusterMetadata:
    """Who leads: broker -> (host, port), and topic-partition -> (error, broker)."""

    brokers: Mapping[int, tuple[str, int]]
    leaders: Mapping[TopicPartition, tuple[int, int]]


class ResponseReader:
    """Reads the fields of an answer in order."""

    def __init__(self, data: memoryview) -> None:
        """Begin at its start."""
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Give numbers of fixed size (struct's letters)."""
        shape = f">{layout}"
        found = struct.unpack_from(shape, self._data, self._at)
        self._at += struct.calcsize(shape)
        return found

    def number(self, layout: str) -> int:
        """Give one number."""
        return self.numbers(layout)[0]

    def read_bytes(self, size: int) -> memoryview:
        """Return the next bytes; none for a negative size."""
        start, self._at = self._at, self._at + max(size, 0)
        return self._data[start : self._at]

    def text(self) -> str:
        """Give a text; empty where it is null."""
        return str(self.read_bytes(self.number("h")), "utf-8")

    def blob(self) -> bytes:
        """Give bytes."""
        return bytes(self.read_bytes(self.number("i")))


def encode_text(value: str) -> bytes:
    """Give a text with its length."""
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def encode_request(kind: tuple[int, int], number: int, client: str, body: bytes) -> bytes:
    """Give a request with its size and header."""
    head = struct.pack(">hhi", *kind, number) + encode_text(client)
    return struct.pack(">i", len(head) + len(body)) + head + body


def encode_metadata_request(topics: Sequence[str]) -> bytes:
    """Ask who leads the partitions of topics; none is created."""
    return struct.pack(">i", len(topics)) + b"".join(map(encode_text, topics)) + b"\0"


def parse_metadata(answer: ResponseReader) -> ClusterMetadata:
    """Read the answer to that."""
    answer.number("i")
    brokers = {}
    for _ in range(answer.number("i")):
        node = answer.number("i")
        brokers[node] = (answer.text(), answer.number("i"))
        answer.text()
    answer.text()
    answer.number("i")
    leaders: dict[TopicPartition, tuple[int, int]] = {}
    for _ in range(answer.number("i")):
        topic_error, topic = answer.number("h"), answer.text()
        answer.number("b")
        partitions = answer.number("i")
        if topic_error and not partitions:
            leaders[topic, -1] = (topic_error, -1)
        for _ in range(partitions):
            error, partition, leader = answer.numbers("hii")
            for _ in range(3):
                answer.numbers(f"{answer.number('i')}i")
            leaders[topic, partition] = (error, leader)
    return ClusterMetadata(brokers, leaders)


def encode_earliest_offset_request(at: TopicPartition) -> bytes:
    """Ask where a topic-partition's log begins; only its leader answers."""
    return (
        struct.pack(">ibi", -1, READ_UNCOMMITTED, 1)
        + encode_text(at[0])
        + struct.pack(">iiq", 1, at[1], _EARLIEST_TIMESTAMP)
    )


def parse_earliest_offset(answer: ResponseReader) -> tuple[int, int]:
    """Read the answer to that: an error, and the offset."""
    answer.numbers("ii")
    answer.text()
    _, _, error, _, offset = answer.numbers("iihqq")
    return error, offset


def encode_fetch_request(
    offsets: Mapping[TopicPartition, int], isolation: int, wait_ms: int, partition_bytes: int
) -> bytes:
    """Ask for records of topic-partitions from these offsets on; at least one batch of one of them comes.

    No rack is told, so that leaders answer themselves (KIP-392).
    """
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), offset in offsets.items():
        wanted = struct.pack(">iiqqi", partition, -1, offset, -1, partition_bytes)
        topics.setdefault(topic, []).append(wanted)
    listed = b"".join(encode_text(t) + struct.pack(">i", len(some)) + b"".join(some) for t, some in topics.items())
    head = struct.pack(">iiiibii", -1, wait_ms, 1, partition_bytes, isolation, 0, -1)
    return head + struct.pack(">i", len(topics)) + listed + struct.pack(">i", 0) + encode_text("")


def parse_fetch(answer: ResponseReader) -> tuple[int, int, dict[TopicPartition, FetchedPartition]]:
    """Read the answer to that: throttle time (ms), the error of the whole, and what each topic-partition gave."""
    throttle_ms, error, _ = answer.numbers("ihi")
    found = {}
    for _ in range(answer.number("i")):
        topic = answer.text()
        for _ in range(answer.number("i")):
            partition, fault, *_ = answer.numbers("ihqqq")
            aborted = tuple(AbortedTransaction(*answer.numbers("qq")) for _ in range(answer.number("i")))
            answer.number("i")
            found[topic, partition] = FetchedPartition(fault, aborted, answer.read_bytes(answer.number("i")))
    return throttle_ms, error, found
