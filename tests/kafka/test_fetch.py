"""Our reader of the Fetch protocol against a real broker: transactions, compaction, gaps, restarts, logins and TLS."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import broker_client_for
from connector.kafka.consumer import assign_ranges, fetcher
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.record_sizes import RecordSizeSampler
from connector.settings import KafkaSettings
from tests.clients.topics import Topics
from tests.model.certificates import HOST, Certificates

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
Row = tuple[int, bytes | None, bytes | None]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def settings(servers: str, extra: Mapping[str, str] = MappingProxyType({})) -> KafkaSettings:
    """Settings of a consumer."""
    return KafkaSettings(servers, (), None, "g", "earliest", extra, {}, {})


def read(kafka: KafkaSettings, topic: str, start: int, end: int, partition: int = 0) -> list[Row]:
    """Read a range as a batch's tasks do, all shares in turn."""
    dealt = assign_ranges(kafka, {(topic, partition): start}, {(topic, partition): end}, 2)
    return [
        row
        for chunk in dealt.all_records()
        for row in zip(chunk.offset.tolist(), chunk.key.to_pylist(), chunk.value.to_pylist(), strict=True)
    ]


def fill(servers: str, topic: str, rows: list[tuple[bytes | None, bytes | None]], **options: str) -> None:
    """Write records to partition 0, one after the other."""
    # A try again must not change the order: brokers may be slow to know a new topic.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": "5", "enable.idempotence": "true", **options})
    for key, value in rows:
        producer.produce(topic, value, key, partition=0, headers={"h": b"1"} if key else None)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_is_read(topics: Topics, compression: str) -> None:
    """Keys, values, nulls and offsets come as they were written, whatever packed them and wherever reading begins."""
    topic = f"fetch-{compression}"
    topics.create({topic: 1})
    rows = [(None if i % 5 == 0 else b"k%d" % i, None if i % 7 == 0 else b"v" * (i % 50)) for i in range(3000)]
    fill(topics.bootstrap_servers, topic, rows, **{"compression.type": compression, "batch.size": "9000"})
    wanted = [(i, *row) for i, row in enumerate(rows)]
    small = settings(topics.bootstrap_servers, {"max.partition.fetch.bytes": "7000"})
    assert read(settings(topics.bootstrap_servers), topic, 0, 3000) == wanted
    assert read(small, topic, 1234, 2345) == wanted[1234:2345]


def test_only_what_was_committed_is_read(topics: Topics) -> None:
    """Records of an aborted transaction and the markers are passed over, and read with read_uncommitted."""
    topic = "fetch-transactions"
    topics.create({topic: 1})
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": "fetch"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, b"a", partition=0)
        producer.produce(topic, b"%d" % number, b"b", partition=0)
        producer.flush(30)
        if number % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    servers = topics.bootstrap_servers
    # Six transactions of two records and a marker each.
    found = read(settings(servers), topic, 0, 18)
    assert found == [(3 * n + i, key, b"%d" % n) for n in (0, 2, 3, 5) for i, key in enumerate((b"a", b"b"))]
    dirty = settings(servers, {"isolation.level": "read_uncommitted"})
    assert [row[0] for row in read(dirty, topic, 0, 18)] == [o for o in range(18) if o % 3 != 2]


def test_compacted_records_are_gaps_and_deleted_ones_an_error(topics: Topics) -> None:
    """What compaction took is passed over; offsets that retention or a person took are a gap error."""
    topic = "fetch-gone"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    topics.create({topic: 1})
    fill(topics.bootstrap_servers, topic, [(b"k", b"%d" % i) for i in range(100)])
    for future in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
        future.result(30)
    with pytest.raises(GapError, match=r"gone.*fetch-gone-0 offset 10"):
        read(settings(topics.bootstrap_servers), topic, 10, 100)
    assert [row[0] for row in read(settings(topics.bootstrap_servers), topic, 40, 100)] == list(range(40, 100))


def test_compaction_leaves_the_rest(topics: Topics) -> None:
    """A compacted topic gives what is left, and a range that ends in nothing ends."""
    topic = "fetch-compacted"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    config |= {"max.compaction.lag.ms": "1", "delete.retention.ms": "0", "min.compaction.lag.ms": "0"}
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        future.result(30)
    for number in range(4):
        fill(topics.bootstrap_servers, topic, [(b"k%d" % (i % 10), b"%d" % number) for i in range(100)])
        time.sleep(0.3)
    deadline = time.monotonic() + 60
    found = read(settings(topics.bootstrap_servers), topic, 0, 400)
    while len(found) == 400 and time.monotonic() < deadline:
        time.sleep(1)
        found = read(settings(topics.bootstrap_servers), topic, 0, 400)
    assert len(found) < 400
    assert {key: value for _, key, value in found} == {b"k%d" % i: b"3" for i in range(10)}
    assert [row[0] for row in found] == sorted(row[0] for row in found)


def test_sizes_are_known_from_a_few_records(topics: Topics) -> None:
    """Bytes per offset, unpacked, are told where they are asked for; a topic that is not there tells nothing."""
    topics.create({"fetch-sizes": 1})
    small, large = [(b"k", b"x" * 100)] * 500, [(b"k", b"y" * 5000)] * 50
    fill(topics.bootstrap_servers, "fetch-sizes", small, **{"compression.type": "gzip"})
    fill(topics.bootstrap_servers, "fetch-sizes", large)
    at = ("fetch-sizes", 0)
    told = RecordSizeSampler(settings(topics.bootstrap_servers)).at({at: [0, 400, 500, 549], ("fetch-nowhere", 0): [0]})
    assert told.keys() == {at}
    assert [round(size, -2) for size in told[at]] == [100, 100, 5000, 5000]


def test_a_large_record_is_read_whole(topics: Topics) -> None:
    """A batch that is larger than a fetch may be comes whole."""
    topic = "fetch-large"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "30000000"})]).values():
        future.result(30)
    fill(
        topics.bootstrap_servers, topic, [(b"k", b"x" * 20_000_000), (b"l", b"y")], **{"message.max.bytes": "30000000"}
    )
    small = settings(topics.bootstrap_servers, {"max.partition.fetch.bytes": "100000"})
    assert [(key, len(value or b"")) for _, key, value in read(small, topic, 0, 2)] == [(b"k", 20_000_000), (b"l", 1)]


def test_a_topic_that_is_not_there_is_told(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody leads a topic that does not exist."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 1.0)
    with pytest.raises(RetriableError, match=r"fetch-nowhere-0 stays unread.* has no leader"):
        read(settings(topics.bootstrap_servers), "fetch-nowhere", 0, 1)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, Certificates, int]]:
    """A broker that speaks TLS with logins, beside its plain port."""
    home = tmp_path_factory.mktemp("guarded")
    made = Certificates.make(home / "certificates")
    own, controller, port = free_ports(3)
    listeners = f"PLAINTEXT://{LOOPBACK}:{own},CONTROLLER://{LOOPBACK}:{controller},GUARDED://{HOST}:{port}"
    users = 'user_reader="let me in"'
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="x" {users};'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.guarded.plain.sasl.jaas.config": plain,
        "listener.name.guarded.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.guarded.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.guarded.ssl.keystore.type": "PKCS12",
        "listener.name.guarded.ssl.keystore.location": str(made.server_store),
        "listener.name.guarded.ssl.keystore.password": made.password,
        "listener.name.guarded.ssl.truststore.type": "PEM",
        "listener.name.guarded.ssl.truststore.location": str(made.authority),
        "listener.name.guarded.ssl.client.auth": "required",
    }
    with KafkaBroker(home / "broker", port=own, properties=properties, short_lived=True) as broker:
        broker.create_topic("t", 1)
        fill(broker.bootstrap_servers, "t", [(b"k", b"v")])
        _add_scram_users(broker)
        yield broker, made, port


def _add_scram_users(broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion("reader", ScramCredentialInfo(mechanism, 4096), b"let me in")
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)


def login(mechanism: str, password: str, made: Certificates, **more: str) -> dict[str, str]:
    """A Java client's settings."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'org.apache.kafka.common.security.{module} required username="reader" password="{password}";'
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.authority),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(made.client_store),
        "ssl.keystore.password": made.password,
        **more,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_logins_over_tls(guarded: tuple[KafkaBroker, Certificates, int], mechanism: str) -> None:
    """With Java's settings of authority, own certificate and login a range is read; a wrong password is told."""
    _, made, port = guarded
    servers = f"{HOST}:{port}"
    assert read(settings(servers, login(mechanism, "let me in", made)), "t", 0, 1) == [(0, b"k", b"v")]
    with pytest.raises(FatalError, match="login"):
        read(settings(servers, login(mechanism, "wrong", made)), "t", 0, 1)


def test_a_certificate_of_another_authority_is_refused(guarded: tuple[KafkaBroker, Certificates, int]) -> None:
    """A broker that our authorities do not vouch for is no broker of ours, and no later try changes that."""
    _, made, port = guarded
    other = login("PLAIN", "let me in", made, **{"ssl.truststore.location": str(made.other_authority)})
    with pytest.raises(
        FatalError, match="its certificate is not accepted: self-signed certificate in certificate chain"
    ):
        read(settings(f"{HOST}:{port}", other), "t", 0, 1)


@pytest.mark.thorough
def test_a_broker_that_restarts_is_waited_for(
    guarded: tuple[KafkaBroker, Certificates, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the broker within a range loses and doubles nothing; one that stays away is an error to try again.

    The last test of this file: it leaves no broker behind.
    """
    own, *_ = guarded
    own.create_topic("restarted", 1)
    rows = [(b"k", b"x" * 1000)] * 3000
    fill(own.bootstrap_servers, "restarted", rows, **{"batch.size": "20000"})
    small = settings(own.bootstrap_servers, {"max.partition.fetch.bytes": "50000"})
    how = fetcher.FetchSettings(partition_bytes=50_000)
    chunks = fetcher.fetch_records(
        broker_client_for(ClusterAddress.of(small.client("consumer"))), OffsetRange("restarted", 0, 0, 3000), how
    )
    seen = next(chunks).offset.tolist()
    own.kill()
    again = threading.Timer(1.0, own.start)
    again.start()
    for chunk in chunks:
        seen += chunk.offset.tolist()
    again.join()
    assert seen == list(range(3000))
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 2.0)
    own.kill()
    with pytest.raises(RetriableError):
        read(small, "restarted", 0, 3000)
