"""Java's consumer settings -> what tasks do with them, and what a start says of those that cannot be used."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connector.cli.main import main
from connector.errors import ConfigError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.consumer import assign_ranges, fetcher
from connector.kafka.consumer.librdkafka_reader import _consumer_for
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.reader_check import check_reader
from connector.settings import KafkaSettings, load
from connector.settings.kafka.reading import ReaderKind
from tests.brokers import KAFKA_2_1, KAFKA_4, Brokers, Log
from tests.host import PROJECT
from tests.model.record_batches import Record, batch
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
    clients = opened(overridden(cluster, connections_max_idle_ms="0"))
    host = cluster.advertised[1]
    assert clients.connection(host) is not clients.connection(host)


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
    (line,) = re.findall(r"Of `consumer\.override\.\*`, tasks use(.*?), and those", DOCUMENTED.read_text(), re.DOTALL)
    assert re.findall(r"`([\w.]+)`", line) == list(HEEDED)


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
        _consumer_for(address, how).close()


def test_other_keys_are_named_in_a_note(cluster: Brokers) -> None:
    """What tasks have no use for is no silent promise."""
    given = {"consumer.override.fetch.min.bytes": "1", "consumer.override.max.poll.records": "10"}
    notes = load([], BASE | {"bootstrap.servers": cluster.servers} | given, {}).notes
    told = "these consumer settings have no effect on the tasks that read records: fetch.min.bytes, max.poll.records"
    assert told in notes


@pytest.mark.parametrize(
    ("key", "text"),
    [("request.timeout.ms", "30s"), ("max.partition.fetch.bytes", "1m"), ("isolation.level", "committed")],
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
    assert "the broker refused the login by PLAIN: wrong" in output
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
