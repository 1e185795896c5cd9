"""Answers of brokers with bytes that no broker sends -> fields, or an error that is handled; never anything else."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from connector.errors import ConnectorError
from connector.kafka.brokers import connection, sasl
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.brokers.connection import BrokerConnection
from connector.kafka.consumer.fetcher import FetchSettings, fetch_records
from connector.kafka.consumer.log_bounds import check_bounds, check_end, check_truncation
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.raw_batches import fetch_raw_batch, find_unreadable
from connector.kafka.consumer.record_sizes import RecordSizeSampler
from connector.kafka.consumer.single_records import read_forward
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
from connector.settings import KafkaSettings
from tests.harness.rounds import SEED, draws
from tests.model.record_batches import Record, batch
from tests.servers.brokers import KAFKA_4, Brokers, Log, _Fields

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


def have_lie(cluster: Brokers, chance: random.Random) -> None:
    """Spoil every other answer of a double."""
    answer: Callable[..., bytes] = cluster._answer

    def lie(*asked: Any) -> bytes:
        given = answer(*asked)
        return spoil(chance, given) if chance.random() < 0.5 else given

    cluster._answer = lie  # type: ignore[method-assign]


def test_a_broker_that_answers_anything_ends_in_a_known_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting and reading from it gives records, or one of the errors that callers know."""
    chance, seen = random.Random(SEED or 1), set[str]()
    monkeypatch.setattr("connector.kafka.consumer.fetcher._RETRY_TIMEOUT_S", 0.0)
    monkeypatch.setattr("connector.kafka.consumer.log_bounds.CONFIRM_S", 0.0)
    with double() as cluster:
        have_lie(cluster, chance)
        setup = {"socket.connection.setup.timeout.ms": "300", "socket.timeout.ms": "300", "retry.backoff.ms": "0"}
        for _ in range(draws(300)):
            client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers, **setup}))
            try:
                for chunk in fetch_records(client, OffsetRange(*AT, 0, 2, 0), FetchSettings(max_wait_ms=1)):
                    seen.add("records" if chunk.unreadable is None else "unreadable")
            except ConnectorError as error:
                seen.add(type(error).__name__)
    assert {"records", "RetriableError"} <= seen


def test_every_look_at_a_broker_that_answers_anything_ends_in_a_known_error() -> None:
    """What is asked beside reading ends as that does: bounds, epochs, single records, raw batches, sizes."""
    chance, ended = random.Random(SEED or 2), set[int]()
    with double() as cluster:
        have_lie(cluster, chance)
        setup = {"socket.connection.setup.timeout.ms": "300", "request.timeout.ms": "300", "retry.backoff.ms": "0"}
        kafka = KafkaSettings(cluster.servers, (), None, "g", "earliest", setup, {}, {})
        address = ClusterAddress.of(kafka.client("consumer"))
        clients = BrokerClient(address)
        looks: list[Callable[[], Any]] = [
            lambda: check_bounds(clients, AT, 1, 0.0),
            lambda: check_end(clients, AT, 1, 2, 0.0),
            lambda: check_truncation(clients, AT, 1, 1),
            lambda: list(read_forward(address, AT, 0, timeout_s=0, max_unpacked_bytes=1 << 20, one=False)),
            lambda: fetch_raw_batch(kafka, AT, 0),
            lambda: find_unreadable(address, OffsetRange(*AT, 0, 2), 1, 1, 1 << 20),
            lambda: RecordSizeSampler(kafka).at({AT: [0, 1]}),
        ]
        for _ in range(draws(100)):
            for number, look in enumerate(looks):
                try:
                    look()
                    ended.add(number)
                except (ConnectorError, OSError):
                    clients.forget(AT)
    assert len(ended) == len(looks)


def test_spoilt_messages_of_logins_are_refused() -> None:
    """Whatever a server says, a login ends as one that is refused, or goes on."""
    chance, user = random.Random(SEED or 3), {"sasl.username": "u", "sasl.password": "p"}
    for _ in range(draws(500)):
        talk = sasl.start_exchange("SCRAM-SHA-256", user, "n")
        assert next(talk)
        for good in (b"r=nx,s=c2FsdA==,i=4", b"v=AAAA"):
            try:
                talk.send(spoil(chance, good))
            except (sasl.LoginRefused, KeyError, ValueError, struct.error, StopIteration):
                break


def test_an_answer_that_trickles_in_has_an_end() -> None:
    """A byte now and then is no progress: it has the time of an answer that does not come."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            with listening.accept()[0] as one, suppress(OSError):
                one.recv(4096)
                one.sendall(struct.pack(">i", 60_000))
                for _ in range(1_000):
                    one.sendall(b"x")
                    time.sleep(0.02)

        threading.Thread(target=trickle, daemon=True).start()
        port = listening.getsockname()[1]
        given = {"bootstrap.servers": f"127.0.0.1:{port}", "socket.connection.setup.timeout.ms": "200"}
        # The other side ends in the midst of its answer: whoever waits for that sees another error.
        with pytest.raises(TimeoutError, match=r"sends \d+ of 60000 bytes in 0 s"):
            BrokerConnection(("127.0.0.1", port), ClusterAddress.of(given))


def test_fields_are_not_read_from_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They become objects, many times as large as their bytes: only records may come in so many."""
    monkeypatch.setattr(connection, "_MAX_FIELDS_BYTES", 60)
    with double() as cluster:
        client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers}))
        with pytest.raises(ConnectorError, match=r"sends a response of \d+ bytes"):
            client.refresh("t")


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
