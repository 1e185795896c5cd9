"""What brokers offer -> the versions that are spoken with them, or one line that says why they cannot be read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import pytest

from connector.cli.doctor.checks import check_broker
from connector.cli.validate import check_connections
from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.check import check_brokers
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.brokers.connection import UnsupportedBroker
from connector.kafka.consumer.fetcher import FetchSettings, fetch_records
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.reader_check import check_reader
from connector.kafka.protocol.api_versions import FETCH, METADATA, negotiate
from connector.settings import SinkSettings, load
from connector.sink.runner import run_sink
from tests.model.record_batches import Record, batch
from tests.servers import brokers
from tests.servers.brokers import Brokers, Log

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "$ConnectionString",
    "sasl.password": "secret",
}
AT_ONCE_S = 2.0
TOKEN = b"\0$ConnectionString\0secret"
OFFERS = {
    "event-hubs": (brokers.EVENT_HUBS, {1: 6, 2: 2, 3: 5}),
    "event-hubs-2022": (brokers.EVENT_HUBS_2022, {1: 6, 2: 2, 3: 5}),
    "kafka-2.1": (brokers.KAFKA_2_1, {1: 10, 2: 4, 3: 7}),
    "kafka-2.4": (brokers.KAFKA_2_4, {1: 11, 2: 5, 3: 7}),
    "kafka-4": (brokers.KAFKA_4, {1: 11, 2: 5, 3: 7}),
    "redpanda": (brokers.REDPANDA, {1: 11, 2: 4, 3: 7}),
    "least": ({1: (4, 4), 2: (1, 1), 3: (1, 1), 18: (0, 0)}, {1: 4, 2: 1, 3: 1}),
}


def filled(cluster: Brokers, count: int = 4) -> list[tuple[int, bytes, bytes]]:
    """Records of t-0 in batches of one each."""
    cluster.logs["t", 0] = log = Log()
    rows = [(offset, b"k%d" % offset, b"v%d" % offset) for offset in range(count)]
    for offset, key, value in rows:
        log.add(batch([Record(offset, key, value)], offset, offset))
    return rows


def read(cluster: Brokers, count: int = 4, settings: Mapping[str, str] | None = None) -> list[tuple[int, bytes, bytes]]:
    """Read t-0 as a task does."""
    client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers, **(settings or {})}))
    chunks = fetch_records(client, OffsetRange("t", 0, 0, count), FetchSettings(partition_bytes=150))
    return [
        row
        for chunk in chunks
        for row in zip(chunk.offset.tolist(), chunk.key.to_pylist(), chunk.value.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("offer", OFFERS)
def test_the_newest_versions_of_both_are_spoken(offer: str) -> None:
    """Whatever brokers users have, the records come as they are, by the newest versions that both sides know."""
    offered, versions = OFFERS[offer]
    with Brokers(offered) as cluster:
        rows = filled(cluster)
        cluster.faults[1] = [1]  # whoever says out of range is asked for the bounds of the log
        assert read(cluster) == rows
        assert {api: cluster.versions(api) for api in versions} == {api: {one} for api, one in versions.items()}


@pytest.mark.parametrize("offer", ["event-hubs", "event-hubs-2022", "kafka-4"])
def test_logins_are_spoken_as_the_broker_takes_them(offer: str) -> None:
    """A broker that knows only the oldest handshake gets bare messages behind it, others requests."""
    with Brokers(OFFERS[offer][0]) as cluster:
        rows, cluster.password = filled(cluster), TOKEN
        assert read(cluster, settings=LOGIN) == rows
        assert cluster.versions(36) == ({1} if 36 in cluster.offered else set())
        with pytest.raises(FatalError, match="does not take logins by SCRAM-SHA-256; it takes PLAIN"):
            read(cluster, settings={**LOGIN, "sasl.mechanisms": "SCRAM-SHA-256"})


def test_a_login_that_ends_is_renewed() -> None:
    """A connection whose login lasts no longer is opened anew in time, not used until the broker cuts it."""
    with Brokers(brokers.KAFKA_4) as cluster:
        cluster.password, cluster.lifetime_ms = TOKEN, 3_600_000
        client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers, **LOGIN}))
        host = cluster.advertised[1]
        first = client.connection(host)
        assert client.connection(host) is first
        assert first.expires_at < time.monotonic() + 3600
        first.expires_at = time.monotonic()
        assert client.connection(host) is not first


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        (brokers.ANCIENT, r"Fetch: the broker offers versions 0 to 3, icebridge versions 4 to 11; ListOffsets: .* 0"),
        (brokers.FUTURE, "Fetch: the broker offers versions 30 to 40, icebridge versions 4 to 11"),
        ({18: (0, 0)}, "Fetch: the broker offers none, icebridge versions 4 to 11; .* Kafka 2.1 and later"),
        ({0: (0, 0)}, "ApiVersions: the broker does not know the request"),
    ],
    ids=["ancient", "future", "nothing", "not even that"],
)
def test_brokers_that_cannot_be_read_are_named(offered: Mapping[int, tuple[int, int]], reason: str) -> None:
    """Who offers nothing that we know is refused at once by name, with what both sides know and what to do."""
    with Brokers(offered) as cluster:
        settings = {"bootstrap.servers": cluster.servers}
        with pytest.raises(UnsupportedBroker, match=f"broker {cluster.servers} cannot be read: .*{reason}"):
            check_brokers(settings)
        with pytest.raises(UnsupportedBroker, match=reason):
            read(cluster)


def refused_in_time(ask: Callable[[], object]) -> str:
    """The reason of a refusal that came within two seconds; one of three has to, as a busy machine is no fault."""
    spans = []
    for _ in range(3):
        slowness, began = tell_slowness(), time.monotonic()
        with pytest.raises(FatalError) as told:
            ask()
        spans.append((time.monotonic() - began) / max(slowness, tell_slowness()))
        if spans[-1] < AT_ONCE_S:
            return str(told.value)
    pytest.fail(f"refused after {spans} s")


def tell_slowness() -> float:
    """How many times as long as alone anything takes now, as others have the processor: 1 where it is idle."""
    began, used, work_s = time.monotonic(), time.thread_time(), 0.02
    while time.thread_time() - used < work_s:
        pass
    return max((time.monotonic() - began) / work_s, 1.0)


def start(settings: SinkSettings) -> None:
    """A start as of `run`, which needs no session to be refused."""
    run_sink(settings, once=True, terminal=False)


@pytest.mark.parametrize(
    "ask",
    [
        lambda settings: check_reader(settings.kafka),
        lambda settings: list(check_connections(settings)),
        lambda settings: list(check_broker(settings)),
        start,
    ],
    ids=["check", "validate", "doctor", "run"],
)
@pytest.mark.parametrize("beside", ["nobody", "one that says nothing", "a name that takes its time"])
def test_a_refusal_is_told_within_two_seconds(
    ask: Callable[[SinkSettings], object], beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, to every command; whoever else is among the bootstrap servers, and whatever name servers do."""
    monkeypatch.setattr("connector.sink.runner.open_session", lambda *_: pytest.fail("a session was opened"))
    slow = resolve_slowly(monkeypatch)
    with Brokers(brokers.FUTURE, nodes=2) as cluster:
        cluster.silent.add(2)
        more = {
            "nobody": "",
            "one that says nothing": f",127.0.0.1:{cluster.port(2)}",
            "a name that takes its time": ",slow.example:9092",
        }
        given = {"topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
        settings = load([], {**given, "bootstrap.servers": cluster.servers + more[beside]}, {})
        told = refused_in_time(lambda: ask(settings))
    slow.set()
    assert f"broker {cluster.servers} cannot be read: Fetch: the broker offers versions 30 to 40" in told


def resolve_slowly(monkeypatch: pytest.MonkeyPatch) -> Event:
    """From now on the address of a name is only known when the event is set."""
    known, resolve = Event(), socket.getaddrinfo

    def wait(host: Any, *more: Any, **named: Any) -> Any:
        if "example" in str(host):
            known.wait(60)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    return known


def test_name_servers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they say of advertised names is a note: brokers that can be read are read without."""
    slow = resolve_slowly(monkeypatch)
    with Brokers(brokers.KAFKA_4, nodes=2) as cluster:
        cluster.advertised = {1: ("kafka-0.example", 9092), 2: ("kafka-1.invalid", 9092)}
        notes = check_brokers({"bootstrap.servers": cluster.servers}, 5.0).notes
        assert not slow.is_set()
        assert [note.partition(" cannot")[0] for note in notes] == ["broker 2"]
        slow.set()


def test_one_answer_is_enough_and_the_others_are_named() -> None:
    """Bootstrap servers that are away, or accept and say nothing, cost the time there is at most, and a note each."""
    with Brokers(brokers.KAFKA_4, nodes=2) as cluster:
        cluster.silent.add(2)
        servers = f"127.0.0.1:{cluster.port(2)},127.0.0.1:1,{cluster.servers}"
        report = check_brokers({"bootstrap.servers": servers}, within_s=0.4)
        assert report.summary.startswith("Fetch 11, ListOffsets 5, Metadata 7")
        assert [note.split(" ", 1)[0].rstrip(":") for note in report.notes] == servers.split(",")[:2]
        cluster.silent.add(1)
        with pytest.raises(RetriableError, match=f"no bootstrap server answers: {cluster.servers} "):
            check_brokers({"bootstrap.servers": cluster.servers}, within_s=0.2)


def test_a_login_may_take_as_long_as_connecting() -> None:
    """Who is slow to log us in can be read, as by tasks; the limit is the option's, and others are not waited for."""
    with Brokers(brokers.KAFKA_4, nodes=2) as cluster:
        cluster.password, cluster.login_s = TOKEN, 2.3
        login = {"bootstrap.servers": cluster.servers, **LOGIN}
        assert check_brokers(login).versions.find(FETCH) == 11
        began = time.monotonic()
        with pytest.raises(RetriableError, match=f"no bootstrap server answers: {cluster.servers} "):
            check_brokers({**login, "socket.connection.setup.timeout.ms": "300"})
        cluster.silent.add(2)
        cluster.login_s = 0.0
        assert check_brokers({**login, "bootstrap.servers": f"{cluster.servers},127.0.0.1:{cluster.port(2)}"}).notes
        assert time.monotonic() - began < 8.0


def test_a_name_that_does_not_resolve_is_told_with_its_listener() -> None:
    """An advertised name that nobody knows here is told with the broker, the name and who gives it out."""
    with Brokers(brokers.KAFKA_4) as cluster:
        filled(cluster)
        cluster.advertised[1] = ("kafka-0.invalid", 9092)
        told = f"{cluster.servers} gives it out as kafka-0.invalid:9092, which does not resolve here"
        assert any(told in note for note in check_brokers({"bootstrap.servers": cluster.servers}).notes)
        client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers}))
        with pytest.raises(OSError, match=f"kafka-0.invalid:9092: the name .*; {cluster.servers} gives it out: adv"):
            client.connection(client.leader(("t", 0)).host)


def test_no_kafka_broker_is_told_as_such() -> None:
    """A port that answers something else, as one that speaks TLS does, is named with the protocol that was tried."""
    for said in (b"\x15\x03\x03\x00\x02\x02\x50", b"HTTP/1.1 400 Bad Request\r\n", b""):
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def answer(listening: socket.socket = listening, said: bytes = said) -> None:
                with listening.accept()[0] as one:
                    one.recv(100)
                    one.sendall(said)

            threading.Thread(target=answer, daemon=True).start()
            with pytest.raises(RetriableError, match=r"security\.protocol=PLAINTEXT right"):
                check_brokers({"bootstrap.servers": f"127.0.0.1:{listening.getsockname()[1]}"})


def test_versions_are_the_newest_of_both() -> None:
    """Of overlapping ranges the newest common version is taken, of others none."""
    found = negotiate({1: (0, 4), 3: (8, 9), 2: (5, 99)})
    assert found.find(FETCH) == 4
    assert found.find(METADATA) is None
    assert found.name_missing() == "Metadata: the broker offers versions 8 to 9, icebridge versions 1 to 7"
