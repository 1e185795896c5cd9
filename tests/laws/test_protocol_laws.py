"""Answers of brokers with bytes that no broker sends -> fields, or an error that is handled; never anything else."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from connector.errors import ConnectorError
from connector.kafka.brokers import sasl
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.consumer.fetcher import FetchSettings, fetch_records
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.protocol.api_versions import ApiVersionsRequest, UnsupportedApiVersions
from connector.kafka.protocol.fetch import FetchRequest
from connector.kafka.protocol.primitives import ResponseReader
from connector.kafka.protocol.requests import (
    EpochEndRequest,
    ListOffsetsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.brokers import KAFKA_4, Brokers, Log, _Fields
from tests.model.record_batches import Record, batch
from tests.running import SEED, draws

AT = ("t", 0)
NUMBERS = (-(2**31), -2, -1, 0, 1, 2**15, 2**20, 2**31 - 1)
REQUESTS: dict[str, tuple[Any, list[int]]] = {
    "fetch": (FetchRequest(AT, 0), [4, 6, 7, 11]),
    "bounds": (ListOffsetsRequest(AT), [1, 2, 4, 5]),
    "metadata": (MetadataRequest("t"), [1, 3, 5, 7]),
    "epochs": (EpochEndRequest(AT, 0), [3]),
    "handshake": (SaslHandshakeRequest("PLAIN"), [1]),
    "authenticate": (SaslAuthenticateRequest(b"x"), [0, 1]),
}


def double() -> Brokers:
    """A broker with two records in t-0."""
    made = Brokers(KAFKA_4)
    log = made.logs[AT] = Log(epoch=1)
    log.add(batch([Record(0, b"k", b"v"), Record(1, None, b"w" * 50)], 0, 1, epoch=1))
    return made


def spoil(chance: random.Random, data: bytes) -> bytes:
    """Change, cut or add some bytes."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) + 1)
        put = chance.choice([chance.randbytes(chance.randint(0, 4)), struct.pack(">i", chance.choice(NUMBERS))])
        made[at : at + chance.choice([0, len(put), 4])] = put
    return bytes(made)


@pytest.mark.parametrize(("name", "version"), [(name, v) for name, (_, all_) in REQUESTS.items() for v in all_])
def test_spoilt_answers_are_read_or_refused(name: str, version: int) -> None:
    """Whatever an answer holds, its fields are read, or it is said to end too early."""
    chance, (request, _) = random.Random(SEED or version), REQUESTS[name]
    cluster = double()
    good = cluster._answer(1, request.api.key, version, _Fields(request.encode(version)))
    request.parse(version, ResponseReader(memoryview(good)))
    for _ in range(draws(2_000)):
        try:
            request.parse(version, ResponseReader(memoryview(spoil(chance, good))))
        except struct.error:
            continue
    cluster._listening[1].close()


def test_spoilt_versions_are_read_or_refused() -> None:
    """The first answer of all may be anybody's."""
    chance, good = random.Random(SEED or 1), double()._versions()
    for _ in range(draws(2_000)):
        try:
            ApiVersionsRequest().parse(0, ResponseReader(memoryview(spoil(chance, good))))
        except (UnsupportedApiVersions, struct.error):
            continue


def test_a_broker_that_answers_anything_ends_in_a_known_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting and reading from it gives records, or one of the errors that callers know."""
    chance, seen = random.Random(SEED or 1), set[str]()
    monkeypatch.setattr("connector.kafka.consumer.fetcher._RETRY_TIMEOUT_S", 0.0)
    monkeypatch.setattr("connector.kafka.consumer.log_bounds.CONFIRM_S", 0.0)
    with double() as cluster:
        answer: Callable[..., bytes] = cluster._answer

        def lie(*asked: Any) -> bytes:
            given = answer(*asked)
            return spoil(chance, given) if chance.random() < 0.5 else given

        cluster._answer = lie  # type: ignore[method-assign]
        setup = {"socket.connection.setup.timeout.ms": "300", "socket.timeout.ms": "300", "retry.backoff.ms": "0"}
        for _ in range(draws(300)):
            client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers, **setup}))
            try:
                for chunk in fetch_records(client, OffsetRange(*AT, 0, 2, 0), FetchSettings(max_wait_ms=1)):
                    seen.add("records" if chunk.unreadable is None else "unreadable")
            except ConnectorError as error:
                seen.add(type(error).__name__)
    assert {"records", "RetriableError"} <= seen


@pytest.mark.parametrize("place", [("..", 9092), ("a" * 64 + ".example", 9092), ("localhost", 99_999), ("x\0y", 9092)])
def test_advertised_names_that_are_none_are_told(place: tuple[str, int]) -> None:
    """A name or port that no resolver takes is like one that does not resolve."""
    with double() as cluster:
        cluster.advertised[1] = place
        client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers}))
        leader = client.leader(AT)
        with pytest.raises(OSError, match=r"this is no address|does not resolve|refused"):
            client.connection(leader.host)


def test_a_server_that_asks_for_endless_hashing_is_refused() -> None:
    """SCRAM's count of rounds is the server's word; what would take hours is not done."""
    for rounds in (0, -1, 10**9, 10**30):
        talk = sasl.start_exchange("SCRAM-SHA-256", {"sasl.username": "u", "sasl.password": "p"}, "n")
        next(talk)
        with pytest.raises(sasl.LoginRefused, match="rounds of hashing"):
            talk.send(f"r=nx,s=c2FsdA==,i={rounds}".encode())
