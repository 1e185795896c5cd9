"""Java's consumer settings -> what tasks do with them, and what a start says of those that cannot be used."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from connector.cli.main import main
from connector.errors import ConfigError, FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.consumer import assign_ranges, fetcher, librdkafka_reader
from connector.kafka.consumer.librdkafka_consumers import consumer_for
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.reader_check import check_reader
from connector.kafka.consumer.readers import with_reader
from connector.kafka.consumer_group import ConsumerGroup
from connector.kafka.dlq.producer import DeadLetterProducer
from connector.kafka.producer import MessageProducer
from connector.settings import KafkaSettings, load
from connector.settings.kafka.reading import ReaderKind
from tests.harness.paths import PROJECT
from tests.harness.tiers import tiered
from tests.model.record_batches import Record, batch
from tests.servers.brokers import KAFKA_2_1, KAFKA_4, Brokers, Log
from tests.unit.test_kafka_readers import STORES

BOTH: tuple[ReaderKind, ...] = ("native", "librdkafka")
BASE = {"debezium.sink.iceberg.warehouse": "/w", "topics": "t"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="my secret";'
DOCUMENTED = PROJECT / "docs" / "how-to" / "kafka.md"


@pytest.fixture
def cluster() -> Iterator[Brokers]:
    """A broker with one record in t-0."""
    with Brokers(KAFKA_4) as made:
        log = made.logs["t", 0] = Log(epoch=0)
        log.add(batch([Record(0, b"k", b"v")], 0, 0))
        yield made


def overridden(cluster: Brokers, **java: str) -> KafkaSettings:
    """Settings with `consumer.override.`, as a properties file has them."""
    given = {f"consumer.override.{key.replace('_', '.')}": text for key, text in java.items()}
    return load([], BASE | {"bootstrap.servers": cluster.servers} | given, {}).kafka


def opened(kafka: KafkaSettings) -> BrokerClient:
    """The connections of a task."""
    return BrokerClient(ClusterAddress.of(kafka.client("consumer")))


def ask(kafka: KafkaSettings) -> BrokerClient:
    """A client that has read the record, and holds its connection."""
    clients = opened(kafka)
    how = assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 1}, 1).how
    (chunk,) = fetcher.fetch_records(clients, OffsetRange("t", 0, 0, 1), how)
    assert chunk.value.to_pylist() == [b"v"]
    return clients


def fetched(cluster: Brokers) -> bytes:
    """The body of the fetch."""
    (one,) = (asked for asked in cluster.asked if asked.api == 1)
    return one.body


# Each setting, as a file has it, and what comes of it.


def check_client_id(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    ask(overridden(cluster, client_id="my reader"))
    assert {one.client for one in cluster.asked} == {"my reader"}


def check_rack(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    ask(overridden(cluster, client_rack="zone-b"))
    assert fetched(cluster).endswith(b"zone-b")


def check_request_timeout(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    client = ask(overridden(cluster, request_timeout_ms="12345"))
    assert client.connection(cluster.advertised[1])._socket.gettimeout() == 12.345


def check_setup_timeout(cluster: Brokers, patch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    connect = socket.create_connection
    patch.setattr(socket, "create_connection", lambda host, wait: told.append(wait) or connect(host, wait))
    ask(overridden(cluster, socket_connection_setup_timeout_ms="4321"))
    assert set(told) == {4.321}


def check_idle(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    host = cluster.advertised[1]
    for text, is_kept in (("0", False), ("-1", True), (str(2**63 - 1), True)):
        clients = opened(overridden(cluster, connections_max_idle_ms=text))
        assert (clients.connection(host) is clients.connection(host)) == is_kept


def check_backoff(cluster: Brokers, patch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, float]] = []
    patch.setattr(fetcher, "pause_s", lambda _, first, most: told.append((first, most)) or 0.0)
    cluster.faults = {1: [6]}
    ask(overridden(cluster, retry_backoff_ms="7", retry_backoff_max_ms="70"))
    assert told == [(0.007, 0.07)]


def check_fetch_wait(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    ask(overridden(cluster, fetch_max_wait_ms="123"))
    assert int.from_bytes(fetched(cluster)[4:8], "big") == 123


def check_fetch_size(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    ask(overridden(cluster, max_partition_fetch_bytes="54321"))
    assert int.from_bytes(fetched(cluster)[12:16], "big") == 54321


def check_isolation(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    ask(overridden(cluster, isolation_level="READ_UNCOMMITTED"))
    assert fetched(cluster)[16] == 0


def check_buffers(cluster: Brokers, _: pytest.MonkeyPatch) -> None:
    client = ask(overridden(cluster, receive_buffer_bytes="33000", send_buffer_bytes="44000"))
    one = client.connection(cluster.advertised[1])._socket
    sizes = [one.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)]
    assert sizes == [2 * 33000, 2 * 44000]  # Linux doubles them for its own use


HEEDED: dict[str, Callable[[Brokers, pytest.MonkeyPatch], None]] = {
    "client.id": check_client_id,
    "client.rack": check_rack,
    "request.timeout.ms": check_request_timeout,
    "socket.connection.setup.timeout.ms": check_setup_timeout,
    "connections.max.idle.ms": check_idle,
    "retry.backoff.ms": check_backoff,
    "retry.backoff.max.ms": check_backoff,
    "fetch.max.wait.ms": check_fetch_wait,
    "max.partition.fetch.bytes": check_fetch_size,
    "isolation.level": check_isolation,
    "receive.buffer.bytes": check_buffers,
    "send.buffer.bytes": check_buffers,
}


@pytest.mark.parametrize("key", HEEDED)
def test_tasks_heed_what_is_documented(cluster: Brokers, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key that the documentation names changes what the native reader does."""
    HEEDED[key](cluster, monkeypatch)


def test_every_documented_key_is_tested() -> None:
    """The list in the documentation is the one above."""
    (line,) = re.findall(
        r"Of `consumer\.override\.\*`, tasks use(.*?),\s+and\s+those", DOCUMENTED.read_text(), re.DOTALL
    )
    assert re.findall(r"`([\w.]+)`", line) == list(HEEDED)


INT, LONG = str(2**31 - 1), str(2**63 - 1)
EXTREMES = {
    "connections.max.idle.ms": ["-1", "0", LONG],
    "fetch.max.wait.ms": ["0", INT],
    "max.partition.fetch.bytes": ["0", INT],
    "metadata.max.age.ms": ["0", LONG],
    "receive.buffer.bytes": ["-1", "0", INT],
    "reconnect.backoff.max.ms": ["0", LONG],
    "reconnect.backoff.ms": ["0", LONG],
    "request.timeout.ms": ["1000", INT],
    "retry.backoff.max.ms": ["0", LONG],
    "retry.backoff.ms": ["0", "+5", LONG],
    "send.buffer.bytes": ["-1", "0", INT],
    "socket.connection.setup.timeout.ms": ["500", LONG],
}
"""What Java takes of each, at both ends."""

UNREAD = {
    "fetch.max.bytes": "1000",
    "fetch.min.bytes": "1000000",
    "group.instance.id": "me",
    "heartbeat.interval.ms": "100000000",
    "max.poll.interval.ms": "1",
    "session.timeout.ms": "1",
}
"""What concerns members of a group, or how much is waited for: librdkafka would refuse some of these."""


EXTREME_CASES = [(key, text) for key in EXTREMES for text in EXTREMES[key]]


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    tiered(
        [(kind, *case) for kind in BOTH for case in EXTREME_CASES],
        kept=[(BOTH[at % 2], *case) for at, case in enumerate(EXTREME_CASES) if at % 3 < 2],
    ),
)
def test_whatever_java_takes_is_read_with(kind: ReaderKind, key: str, text: str) -> None:
    """The greatest and the least, zero and -1: they mean what they mean to Java, or the nearest that can be."""
    with Brokers(KAFKA_2_1) as cluster:
        log = cluster.logs["t", 0] = Log(epoch=0)
        log.add(batch([Record(0, b"k", b"v")], 0, 0))
        cluster.faults = {1: [6]}
        kafka = with_reader(overridden(cluster, **{key.replace(".", "_"): text}), kind)
        (chunk,) = assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 1}, 1).all_records()
        assert chunk.value.to_pylist() == [b"v"]
        KafkaAdmin(attrs.evolve(kafka, admin=kafka.consumer))
        MessageProducer(attrs.evolve(kafka, producer=kafka.consumer), None, 1)._client.get()  # type: ignore[arg-type]


def test_what_readers_have_no_use_for_stands_in_nobodys_way() -> None:
    """The clients that librdkafka makes for us join no group, and read whole ranges."""
    with Brokers(KAFKA_2_1) as cluster:
        kafka = overridden(cluster, **{key.replace(".", "_"): text for key, text in UNREAD.items()})
        ConsumerGroup(kafka).close()
    assert not kafka.client("consumer").keys() & UNREAD.keys()


@pytest.mark.parametrize(
    "given",
    [
        {"acks": "1"},
        {"acks": "0", "enable.idempotence": "false"},
        {"retries": "0"},
        {"max.in.flight.requests.per.connection": "10"},
        {"linger.ms": LONG, "delivery.timeout.ms": INT},
        {"batch.size": "0", "max.request.size": "0", "request.timeout.ms": INT},
    ],
)
def test_producers_can_be_made_of_what_java_takes(given: Mapping[str, str]) -> None:
    """What is acknowledged is there, once, whatever is asked for: such settings are other connectors', mostly."""
    java = {f"producer.override.{key}": text for key, text in given.items()}
    kafka = load([], BASE | {"bootstrap.servers": "127.0.0.1:1"} | java, {}).kafka
    MessageProducer(kafka, None, 1)._client.get()  # type: ignore[arg-type]
    DeadLetterProducer("t", kafka)


def test_a_client_that_cannot_be_made_says_why() -> None:
    """In our own words, whichever client it is."""
    kafka = load([], BASE | {"bootstrap.servers": "127.0.0.1:1"}, {}).kafka
    kafka = attrs.evolve(kafka, producer={"compression.type": "best"}, consumer={"check.crcs": "perhaps"})
    for make in (
        MessageProducer(kafka, None, 1)._client.get,  # type: ignore[arg-type]
        lambda: DeadLetterProducer("t", kafka),
        lambda: ConsumerGroup(kafka),
    ):
        with pytest.raises(FatalError, match="the Kafka client cannot be made: "):
            make()


def test_a_broker_waits_for_records_no_longer_than_we_wait_for_the_broker(cluster: Brokers) -> None:
    """A request that is cut off while the broker waits would be asked for ever."""
    ask(overridden(cluster, request_timeout_ms="800", fetch_max_wait_ms="60000"))
    assert int.from_bytes(fetched(cluster)[4:8], "big") == 400


@pytest.mark.parametrize("kind", BOTH)
def test_no_wait_at_all_keeps_no_core_busy(kind: ReaderKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `fetch.max.wait.ms=0` brokers do not wait for records: who asks them does, for a moment."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 1.0)
    monkeypatch.setattr(librdkafka_reader, "RETRY_TIMEOUT_S", 1.0)
    with Brokers(KAFKA_2_1) as cluster:
        log = cluster.logs["t", 0] = Log(epoch=0, stable=1)
        for offset in range(2):
            log.add(batch([Record(offset, b"k", b"v")], offset, offset))
        cluster.longest_wait_ms = 60_000
        kafka = with_reader(overridden(cluster, fetch_max_wait_ms="0"), kind)
        with pytest.raises(RetriableError):
            list(assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 2}, 1).all_records())
        assert sum(one.api == 1 for one in cluster.asked) < 150


def test_no_fetch_asks_for_more_than_is_taken(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that Java takes, and with which a broker sends more than an answer may have, would be asked for ever."""
    monkeypatch.setattr(fetcher, "_record_bytes", {})
    ask(overridden(cluster, max_partition_fetch_bytes=INT))
    assert int.from_bytes(fetched(cluster)[12:16], "big") == 1 << 29


def test_librdkafka_takes_all_of_them() -> None:
    """The second reader is made of the same settings, by its own names."""
    # A double of Kafka 2.1: of later versions it offers forms that librdkafka asks for and it does not speak.
    numbers = dict.fromkeys((key for key in HEEDED if key.endswith((".ms", ".bytes"))), "54321")
    java = {**numbers, "client.id": "c", "client.rack": "zone-b", "isolation.level": "read_committed"}
    with Brokers(KAFKA_2_1) as cluster:
        kafka = overridden(cluster, **{key.replace(".", "_"): text for key, text in java.items()})
        how = assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 1}, 1).how
        address = ClusterAddress.of(kafka.client("consumer"))
        names = {"fetch.wait.max.ms", "socket.timeout.ms", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"}
        assert names < dict(address.settings).keys()
        consumer_for(address, how).client.get()


def test_other_keys_are_named_in_a_note(cluster: Brokers) -> None:
    """What tasks have no use for is no silent promise."""
    given = {"consumer.override.fetch.min.bytes": "1", "consumer.override.max.poll.records": "10"}
    notes = load([], BASE | {"bootstrap.servers": cluster.servers} | given, {}).notes
    told = "these consumer settings have no effect on the tasks that read records: fetch.min.bytes, max.poll.records"
    assert told in notes


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("request.timeout.ms", "30s"),
        ("request.timeout.ms", "0"),
        ("request.timeout.ms", str(2**31)),
        ("socket.connection.setup.timeout.ms", "0"),
        ("socket.connection.setup.timeout.ms", "-1"),
        ("connections.max.idle.ms", "1e3"),
        ("connections.max.idle.ms", str(2**63)),
        ("retry.backoff.ms", "-1"),
        ("retry.backoff.max.ms", "-1"),
        ("fetch.max.wait.ms", "-1"),
        ("max.partition.fetch.bytes", "1m"),
        ("max.partition.fetch.bytes", "-1"),
        ("max.partition.fetch.bytes", str(2**31)),
        ("receive.buffer.bytes", "-2"),
        ("send.buffer.bytes", str(2**40)),
        ("isolation.level", "committed"),
    ],
)
def test_values_that_no_client_takes_are_faults(cluster: Brokers, key: str, text: str) -> None:
    """A time, size or level that cannot be read is named with its line, before anything starts."""
    with pytest.raises(ConfigError, match=re.escape(key)) as told:
        overridden(cluster, **{key.replace(".", "_"): text})
    assert len(told.value.faults) == 1


def validate(folder: Path, given: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and output of `icebridge validate --connect`."""
    file = folder / "sink.properties"
    lines = {"name": "asked", "topics": "t", "debezium.sink.iceberg.warehouse": str(folder), **given}
    file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    done = CliRunner().invoke(main, ["validate", "--connect", str(file)])
    return done.exit_code, done.output


@pytest.mark.parametrize("kind", BOTH)
def test_a_wrong_password_ends_a_start_at_once(cluster: Brokers, kind: ReaderKind, tmp_path: Path) -> None:
    """The broker's word is told, and never the password; with both readers."""
    cluster.password = b"\0me\0another"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    given = {"bootstrap.servers": cluster.servers, "consumer.reader": kind, **login}
    code, output = validate(tmp_path, given)
    assert code == 1
    assert f"broker {cluster.servers} refused the login by PLAIN: wrong" in output
    assert "secret" not in output


@pytest.mark.parametrize("kind", BOTH)
def test_a_certificate_that_nobody_vouches_for_ends_a_start_at_once(
    cluster: Brokers, kind: ReaderKind, tmp_path: Path
) -> None:
    """No later try changes that; the setting that names whom to trust is told."""
    serve_tls(cluster, tmp_path)
    given = {"bootstrap.servers": cluster.servers, "consumer.reader": kind, "security.protocol": "SSL"}
    code, output = validate(tmp_path, given)
    assert code == 1
    assert "its certificate is not accepted: self-signed certificate; ssl.truststore.location" in output


def serve_tls(cluster: Brokers, folder: Path, *, client: bool = False) -> None:
    """From now on the broker speaks TLS, and asks for a certificate if it is to."""
    names = {"keystore": "key.p12", "truststore": "trust.p12"}
    stores = {f"ssl.{store}.location": str(STORES / file) for store, file in names.items()}
    words = {
        f"ssl.{store}.{part}": text for store in names for part, text in (("type", "PKCS12"), ("password", "storepass"))
    }
    kafka = KafkaSettings(
        cluster.servers, (), None, "g", "earliest", {"security.protocol": "SSL", **stores, **words}, {}, {}
    )
    pem = kafka.client("consumer")
    (folder / "own.pem").write_text(pem["ssl.certificate.pem"] + pem["ssl.key.pem"])
    (folder / "trusted.pem").write_text(pem["ssl.ca.pem"])
    cluster.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "trusted.pem"))
    cluster.tls.load_cert_chain(folder / "own.pem")
    if client:
        cluster.tls.verify_mode = ssl.CERT_REQUIRED


def test_a_broker_that_asks_for_our_certificate_says_so(cluster: Brokers, tmp_path: Path) -> None:
    """Without a keystore, its refusal comes with the first answer (TLS 1.3), and names the setting."""
    serve_tls(cluster, tmp_path, client=True)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "trusted.pem")}
    more = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    code, output = validate(tmp_path, {"bootstrap.servers": cluster.servers, **trust, **more})
    assert code == 1
    assert re.search(r"does not take our certificate \(\w*CERTIFICATE_REQUIRED\); ssl\.keystore\.location", output), (
        output
    )


def reason_within_s(given: Mapping[str, str], within_s: float = 0.5) -> str:
    """Why no bootstrap server can be used."""
    with pytest.raises(RetriableError) as told:
        check_reader(load([], BASE | dict(given), {}).kafka, within_s)
    return str(told.value)


def test_tls_and_plain_ports_that_are_mixed_up_are_told(cluster: Brokers, tmp_path: Path) -> None:
    """Each way round the setting is named, and no stack of somebody else's errors is shown."""
    servers = {"bootstrap.servers": cluster.servers}
    assert "security.protocol=SSL" in reason_within_s({**servers, "security.protocol": "SSL"})
    serve_tls(cluster, tmp_path)
    assert "is security.protocol=PLAINTEXT right?" in reason_within_s(servers)


def test_bootstrap_servers_that_are_of_no_use_are_told_one_by_one() -> None:
    """One that says nothing, one where nobody listens, a name that does not resolve: each with its reason."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        quiet = f"127.0.0.1:{silent.getsockname()[1]}"
        told = reason_within_s({"bootstrap.servers": f"{quiet},127.0.0.1:1,no.such.host.invalid:9092"}, 1.0)
    assert re.search(rf"{quiet} (says nothing for|does not answer in time)", told), told
    assert "127.0.0.1:1: Connection refused" in told
    assert "no.such.host.invalid:9092: the name does not resolve" in told
