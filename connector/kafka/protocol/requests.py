"""A question to a broker -> its bytes in any version, and the answer's fields (pure).

Source: Kafka's protocol documentation, "The Messages".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Protocol, TypeVar

import attrs

from connector.kafka.protocol import api_versions
from connector.kafka.protocol.api_versions import Api
from connector.kafka.protocol.primitives import ResponseReader, encode_blob, encode_text
from connector.runtime.topic_partitions import TopicPartition

T_co = TypeVar("T_co", covariant=True)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
UNKNOWN_EPOCH = -1
WHOLE_TOPIC = -1
"""Stands for a partition where an error is the whole topic's."""

_CONSUMER = -1
"""Who asks is no replica."""

_LATEST, _EARLIEST = -1, -2
"""Stand for the end and the beginning of a log in place of a time."""


class Request(Protocol[T_co]):
    """One kind of request."""

    @property
    def api(self) -> Api: ...  # noqa: D102

    def encode(self, version: int) -> bytes:
        """Return the body."""

    def parse(self, version: int, answer: ResponseReader) -> T_co:
        """Read the response. struct.error where it is cut off."""


@attrs.frozen
class Leader:
    """Who leads a topic-partition: error code, broker and epoch; `UNKNOWN_EPOCH` where the broker does not tell it."""

    error: int
    broker: int
    epoch: int = UNKNOWN_EPOCH


@attrs.frozen
class ClusterMetadata:
    """Where brokers listen, and who leads; partition `WHOLE_TOPIC` stands for a topic that has an error."""

    brokers: Mapping[int, tuple[str, int]]
    leaders: Mapping[TopicPartition, Leader]


@attrs.frozen
class MetadataRequest:
    """Asks who leads the partitions of a topic, None for no topic. Brokers before Kafka 0.11 may create it."""

    topic: str | None
    api = api_versions.METADATA

    def encode(self, version: int) -> bytes:
        """Return the body."""
        topics = struct.pack(">i", 0) if self.topic is None else struct.pack(">i", 1) + encode_text(self.topic)
        return topics + (b"\0" if version >= 4 else b"")

    def parse(self, version: int, answer: ResponseReader) -> ClusterMetadata:
        """Read brokers and leaders."""
        if version >= 3:
            answer.skip("i")  # throttle time
        brokers = {}
        for _ in range(answer.count()):
            node = answer.number("i")
            brokers[node] = (answer.text(), answer.number("i"))
            answer.text()  # rack
        if version >= 2:
            answer.text()  # cluster id
        answer.skip("i")  # controller
        leaders: dict[TopicPartition, Leader] = {}
        for _ in range(answer.count()):
            topic_error, topic = answer.number("h"), answer.text()
            answer.skip("b")  # is internal
            if topic_error:
                leaders[topic, WHOLE_TOPIC] = Leader(topic_error, -1)
            for _ in range(answer.count()):
                partition, leader = _parse_leader(version, answer)
                leaders[topic, partition] = leader
        return ClusterMetadata(brokers, leaders)


def _parse_leader(version: int, answer: ResponseReader) -> tuple[int, Leader]:
    error, partition, broker = answer.numbers("hii")
    epoch = answer.number("i") if version >= 7 else UNKNOWN_EPOCH
    for _ in range(3 if version >= 5 else 2):  # replicas, those in sync, those offline
        answer.skip(f"{answer.count()}i")
    return partition, Leader(error, broker, epoch)


@attrs.frozen
class ListOffsetsRequest:
    """Asks a leader where the log of a topic-partition begins, or where its replicated part ends."""

    at: TopicPartition
    latest: bool = False
    api = api_versions.LIST_OFFSETS

    def encode(self, version: int) -> bytes:
        """Return the body."""
        head = struct.pack(">i", _CONSUMER) + (struct.pack(">b", READ_UNCOMMITTED) if version >= 2 else b"")
        topic = struct.pack(">i", 1) + encode_text(self.at[0]) + struct.pack(">ii", 1, self.at[1])
        epoch = struct.pack(">i", UNKNOWN_EPOCH) if version >= 4 else b""
        return head + topic + epoch + struct.pack(">q", _LATEST if self.latest else _EARLIEST)

    def parse(self, version: int, answer: ResponseReader) -> tuple[int, int]:
        """Read an error code and the offset."""
        if version >= 2:
            answer.skip("i")  # throttle time
        answer.skip("i")
        answer.text()
        _, _, error, _, offset = answer.numbers("iihqq")
        return error, offset


@attrs.frozen
class EpochEnd:
    """Where an epoch ends on its leader: the newest epoch up to the one asked for, and the offset behind it."""

    error: int
    epoch: int
    end: int


@attrs.frozen
class EpochEndRequest:
    """Asks a leader where an epoch's records end (KIP-320)."""

    at: TopicPartition
    epoch: int
    leader_epoch: int = UNKNOWN_EPOCH
    api = api_versions.OFFSET_FOR_LEADER_EPOCH

    def encode(self, _: int) -> bytes:
        """Return the body."""
        head = struct.pack(">ii", _CONSUMER, 1) + encode_text(self.at[0])
        return head + struct.pack(">iiii", 1, self.at[1], self.leader_epoch, self.epoch)

    def parse(self, _: int, answer: ResponseReader) -> EpochEnd:
        """Read the answer."""
        answer.skip("ii")
        answer.text()
        _, error, _, epoch, end = answer.numbers("ihiiq")
        return EpochEnd(error, epoch, end)


@attrs.frozen
class SaslHandshakeRequest:
    """Asks for a login by a mechanism."""

    mechanism: str
    api = api_versions.SASL_HANDSHAKE

    def encode(self, _: int) -> bytes:
        """Return the body."""
        return encode_text(self.mechanism)

    def parse(self, _: int, answer: ResponseReader) -> tuple[int, tuple[str, ...]]:
        """Read an error code, and the mechanisms that the broker takes."""
        return answer.number("h"), tuple(answer.text() for _ in range(answer.count()))


@attrs.frozen
class SaslAnswer:
    """A step of a login: error code and its reason, the server's message, and how long the login lasts (0: no end)."""

    error: int
    reason: str
    message: bytes
    lifetime_ms: int = 0


@attrs.frozen
class SaslAuthenticateRequest:
    """Sends a message of a login."""

    message: bytes = attrs.field(repr=False)
    api = api_versions.SASL_AUTHENTICATE

    def encode(self, _: int) -> bytes:
        """Return the body."""
        return encode_blob(self.message)

    def parse(self, version: int, answer: ResponseReader) -> SaslAnswer:
        """Read the server's message."""
        error, reason, message = answer.number("h"), answer.text(), answer.blob()
        return SaslAnswer(error, reason, message, answer.number("q") if version >= 1 else 0)
