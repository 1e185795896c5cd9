"""Both readers over one broker -> the same records, the same errors: what a reader of ranges has to do."""

from __future__ import annotations

import re
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.connection import UnsupportedBroker
from connector.kafka.consumer import assign_ranges, fetcher, librdkafka_reader, log_bounds
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.reader_check import check_reader
from connector.kafka.consumer.readers import choose_reader, with_reader
from connector.kafka.consumer.record_sizes import RecordSizeSampler
from connector.settings import KafkaSettings
from connector.settings.kafka.reading import ReaderKind
from tests.harness.paths import PROJECT
from tests.harness.tiers import crossed
from tests.model.record_batches import GZIP, LZ4, NONE, SNAPPY, XERIAL, ZSTD, Record, batch, messages
from tests.servers.brokers import ANCIENT, FUTURE, Brokers, Log
from tests.unit.test_fetch_crafted import CRAFTED

STORES = PROJECT / "tests" / "fixtures" / "stores"
OFFERED = {0: (0, 7), 1: (4, 11), 2: (1, 5), 3: (1, 7), 18: (0, 0), 23: (0, 3)}
"""What the double speaks: librdkafka asks for the newest."""

BOTH: tuple[ReaderKind, ...] = ("native", "librdkafka")
LOOSE = [
    *("2^62 value", "too many records", "negative count", "too few records", "falling offsets"),
    "spoilt start of a second gzip",
]
"""Batches of which librdkafka reads a record all the same: it stops where they end, and looks at no more."""

TOLD = ["checksum", "offset of another batch", "1 GiB record", "too many records", "no zstd"]
"""One each: librdkafka tells it, says nothing, reads it, cannot unpack it."""

ENDLESS = "cut gzip"
"""A batch on which librdkafka never ends."""


@pytest.fixture
def cluster() -> Iterator[Brokers]:
    """A broker whose log begins at 5; its records are in batches of every codec, with gaps."""
    with Brokers(OFFERED) as made:
        log = made.logs["t", 0] = Log(start=5, epoch=2)
        at = 5
        for codec in (NONE, GZIP, SNAPPY, XERIAL, LZ4, ZSTD):
            some = [record(at), record(at + 1), record(at + 3)]
            log.add(batch(some, at, at + 3, codec, epoch=2))
            at += 4
        yield made


def record(offset: int) -> Record:
    """Keys, values and headers, or none of them."""
    key = None if offset % 3 == 0 else b"k%d" % offset
    value = None if offset % 5 == 0 else b"v" * offset
    headers = () if offset % 2 else (("__debezium.oldkey", b"o%d" % offset), ("other", None))
    return Record(offset, key, value, headers)


def settings(cluster: Brokers, kind: ReaderKind, **java: str) -> KafkaSettings:
    """A consumer's settings that name a reader."""
    named = {key.replace("_", "."): text for key, text in java.items()}
    return with_reader(KafkaSettings(cluster.servers, (), None, "g", "earliest", named, {}, {}), kind)


def read(kafka: KafkaSettings, start: int, end: int, meter: FetchMeter | None = None) -> list[ConsumerRecords]:
    """Read t-0 as a batch's tasks do."""
    dealt = assign_ranges(kafka, {("t", 0): start}, {("t", 0): end}, 1)
    return [chunk for task in range(len(dealt.shares)) for chunk in dealt.chunks(task, meter)]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("start", "end"), [(5, 29), (6, 28), (10, 12), (28, 29)])
def test_exactly_the_records_of_the_range_come(cluster: Brokers, kind: ReaderKind, start: int, end: int) -> None:
    """Keys, values, nulls, offsets and headers are as they were written, of every codec, wherever a range begins."""
    meter = FetchMeter()
    chunks = read(settings(cluster, kind), start, end, meter)
    expected = [record(o) for b in range(5, 29, 4) for o in (b, b + 1, b + 3) if start <= o < end]
    rows = [
        row
        for chunk in chunks
        for row in zip(chunk.offset.tolist(), chunk.key.to_pylist(), chunk.value.to_pylist(), strict=True)
    ]
    assert rows == [(one.offset, one.key, one.value) for one in expected]
    old = [key for chunk in chunks for key in (chunk.with_headers("__debezium.oldkey", None).old_key or ()).to_pylist()]
    assert old == [dict(one.headers).get("__debezium.oldkey") for one in expected]
    assert meter.readers == {kind}
    assert meter.size_bytes > 0


@pytest.mark.parametrize("kind", BOTH)
def test_what_retention_took_is_a_gap(cluster: Brokers, kind: ReaderKind) -> None:
    """A range that begins in front of the log is an error that says where the log begins."""
    with pytest.raises(GapError, match=r"records are gone .* t-0 offset 2; it begins at 5 now"):
        read(settings(cluster, kind), 2, 9)


@pytest.mark.parametrize("kind", BOTH)
def test_a_log_that_ends_too_early_is_a_gap(
    cluster: Brokers, kind: ReaderKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was made again with less, or lost its end: told as such when its leader stays at it."""
    monkeypatch.setattr(log_bounds, "CONFIRM_S", 0.3)
    with pytest.raises(GapError, match=r"t-0 offset 40; its leader's log ends at 29 now"):
        read(settings(cluster, kind, retry_backoff_ms="1", retry_backoff_max_ms="50"), 40, 45)


@pytest.mark.parametrize("kind", BOTH)
def test_a_range_whose_end_was_lost_is_a_gap(
    cluster: Brokers, kind: ReaderKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends within the range now: no broker calls an offset there out of range, and nothing would ever come."""
    monkeypatch.setattr(log_bounds, "CONFIRM_S", 0.2)
    monkeypatch.setattr(fetcher, "_NOTHING_THERE_S", 0.1)
    monkeypatch.setattr(librdkafka_reader, "RETRY_TIMEOUT_S", 0.3)
    with pytest.raises(GapError, match=r"t-0 offset 29; its leader's log ends at 29 now"):
        read(settings(cluster, kind), 25, 35)


@pytest.mark.parametrize(
    ("name", "kind"),
    crossed([name for name in CRAFTED if name != ENDLESS], BOTH, [(name, kind) for name in TOLD for kind in BOTH]),
)
def test_a_record_batch_that_is_none_is_told(name: str, kind: ReaderKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read is never passed over: a chunk tells its offsets, and the records around it are read.

    librdkafka says nothing of some, and reads what a few others begin with.
    """
    monkeypatch.setattr(librdkafka_reader, "LOOK_S", 0.1)
    with Brokers(OFFERED) as cluster:
        log = cluster.logs["t", 0] = Log()
        for data in (batch([Record(0, b"k", b"a")], 0, 0), CRAFTED[name][0](), batch([Record(2, b"k", b"b")], 2, 2)):
            log.add(data)
        kafka = settings(cluster, kind, retry_backoff_ms="1", retry_backoff_max_ms="1")
        chunks = read(kafka, 0, 3)
    offsets = [offset for chunk in chunks for offset in chunk.offset.tolist()]
    unreadable = [(x.first, x.last) for chunk in chunks if (x := chunk.unreadable) is not None]
    loose = kind == "librdkafka" and name in LOOSE
    assert (offsets, unreadable) == (([0, 1, 2], []) if loose else ([0, 2], [(1, 1)]))


def test_offsets_of_another_batch_stop_librdkafka() -> None:
    """It would pass over what is between, as it believes them: the records that follow show that they are wrong."""
    with Brokers(OFFERED) as cluster:
        log = cluster.logs["t", 0] = Log()
        log.add(batch([Record(0, b"k", b"a")], 0, 0))
        log.add(CRAFTED["offset of another batch"][0]())
        for offset in range(2, 12):
            log.add(batch([Record(offset, b"k", b"b")], offset, offset))
        with pytest.raises(FatalError, match=r"librdkafka gives offset 2 after 9: .* native reader"):
            read(settings(cluster, "librdkafka"), 0, 12)


@pytest.mark.thorough
def test_what_librdkafka_never_ends_on_is_told() -> None:
    """It unpacks a gzip that was cut off for ever, and gives nothing in front of it either: the sink stops by name.

    In a process of its own, as that client can never be closed.
    """
    script = f"""
import os
from connector.errors import FatalError
from connector.kafka.consumer import librdkafka_reader
from tests.unit.test_kafka_readers import *
librdkafka_reader.LOOK_S, librdkafka_reader.RETRY_TIMEOUT_S = 0.5, 2.0
with Brokers(OFFERED) as cluster:
    log = cluster.logs["t", 0] = Log()
    for data in (batch([Record(0, b"k", b"a")], 0, 0), CRAFTED[{ENDLESS!r}][0]()):
        log.add(data)
    try:
        read(settings(cluster, "librdkafka"), 0, 2)
    except FatalError as error:
        print(error, flush=True)
    os.kill(os.getpid(), 9)
"""
    line = [sys.executable, "-c", script]
    ran = subprocess.run(line, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert re.search(r"t-0 offset 0 .*librdkafka gives nothing.* 1 to 1, .*too early.*consumer.reader", ran.stdout), ran


def test_what_only_librdkafka_cannot_read_stops(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that our own reader can read is no dead letter: the sink stops, and says who can read it."""
    monkeypatch.setattr(librdkafka_reader, "find_unreadable", lambda *_: (None, True))
    spoil(cluster)
    with pytest.raises(FatalError, match=r"t-0 offset 9 .* by librdkafka: _BAD_MSG: .* native reader can"):
        read(settings(cluster, "librdkafka"), 5, 17)


def test_without_a_second_look_an_unreadable_batch_stops(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka does not say where such a batch ends: without an answer to our own protocol nothing is skipped."""

    def refuse(*_: object) -> None:
        raise FatalError("no login by GSSAPI")

    monkeypatch.setattr(librdkafka_reader, "find_unreadable", refuse)
    spoil(cluster)
    with pytest.raises(FatalError, match=r"_BAD_MSG: .*; nobody else can look at it: no login by GSSAPI"):
        read(settings(cluster, "librdkafka"), 5, 17)


@pytest.mark.parametrize("kind", BOTH)
def test_a_log_that_was_cut_in_front_of_a_range_is_noticed(cluster: Brokers, kind: ReaderKind) -> None:
    """Other records took the places of those that were read, up to the stored offset and beyond."""
    kafka, log, at = settings(cluster, kind), cluster.logs["t", 0], ("t", 0)
    log.epoch = 4
    log.add(batch([record(29)], 29, 29, epoch=4))
    dealt = assign_ranges(kafka, {at: 29}, {at: 30}, 1, epochs={at: 2})
    assert [offset for chunk in dealt.all_records() for offset in chunk.offset.tolist()] == [29]
    del log.batches[3:]
    log.epoch = 5
    log.add(batch([record(o) for o in range(17, 40)], 17, 39, epoch=5))
    with pytest.raises(GapError, match=r"t-0 was read up to offset 30, .* \(leader epoch 4\) up to 17 only"):
        list(assign_ranges(kafka, {at: 30}, {at: 35}, 1, epochs={at: 4}).all_records())


@pytest.mark.parametrize("kind", BOTH)
def test_an_epoch_that_no_leader_had_is_not_stored(cluster: Brokers, kind: ReaderKind) -> None:
    """A damaged one would hide each later cut of the log: no checksum covers it."""
    base, last, epoch, data = cluster.logs["t", 0].batches[1]
    cluster.logs["t", 0].batches[1] = (base, last, epoch, data[:12] + struct.pack(">i", 1 << 20) + data[16:])
    for end, epochs in ((9, {("t", 0): (8, 2)}), (13, {}), (17, {("t", 0): (16, 2)})):
        meter = FetchMeter()
        read(settings(cluster, kind), 5, end, meter)
        assert meter.metrics.epochs == epochs


@pytest.mark.parametrize("kind", BOTH)
def test_an_unreadable_batch_behind_a_gap_is_told(cluster: Brokers, kind: ReaderKind) -> None:
    """Compaction took the records in front of it: it is the next batch all the same, and what follows is read."""
    spoil(cluster)
    del cluster.logs["t", 0].batches[0]
    chunks = read(settings(cluster, kind, retry_backoff_ms="1"), 5, 17)
    assert [(x.first, x.last) for chunk in chunks if (x := chunk.unreadable) is not None] == [(9, 12)]
    assert [offset for chunk in chunks for offset in chunk.offset.tolist()] == [13, 14, 16]


def spoil(cluster: Brokers) -> None:
    """Change a byte of the batch from 9 to 12."""
    data = bytearray(cluster.logs["t", 0].batches[1][3])
    data[-1] ^= 1
    cluster.logs["t", 0].batches[1] = (9, 12, 2, bytes(data))


@pytest.mark.parametrize("kind", BOTH)
def test_brokers_that_stay_away_are_tried_again_later(
    cluster: Brokers, kind: ReaderKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while without an answer the batch is tried anew."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(librdkafka_reader, "RETRY_TIMEOUT_S", 0.3)
    cluster.kill(1)
    with pytest.raises(RetriableError, match=r"t-0 stays unread at offset 5"):
        read(settings(cluster, kind), 5, 9)


@pytest.mark.parametrize("kind", BOTH)
def test_rights_that_are_missing_end_it(cluster: Brokers, kind: ReaderKind) -> None:
    """A topic that we may not read is no broker that is away."""
    cluster.faults = {1: [29] * 50}
    with pytest.raises(FatalError, match=r"TOPIC_AUTHORIZATION_FAILED"):
        read(settings(cluster, kind), 5, 9)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("message_format", [0, 1])
def test_messages_of_old_formats_are_for_librdkafka(cluster: Brokers, message_format: int, codec: int) -> None:
    """A topic may have some of before Kafka 0.11: ours names the option that selects the reader that knows them."""
    log = cluster.logs["t", 0] = Log(epoch=0)
    old = [Record(offset, b"k%d" % offset, b"v" * offset * 20) for offset in range(4)]
    sets = [[one] for one in old] if codec == NONE else [old]
    for some in sets:
        data = messages(some, message_format, codec)
        log.batches.append((some[0].offset, some[-1].offset, -1, data))
    log.add(batch([Record(4, b"k4", b"new")], 4, 4))
    with pytest.raises(FatalError, match=rf"message format {message_format}.*consumer\.reader=librdkafka"):
        read(settings(cluster, "native"), 0, 5)
    chunks = read(settings(cluster, "librdkafka"), 0, 5)
    found = [row for one in chunks for row in zip(one.offset.tolist(), one.value.to_pylist(), strict=True)]
    assert found == [*((one.offset, one.value) for one in old), (4, b"new")]
    assert read(settings(cluster, "librdkafka"), 2, 4)[0].key.to_pylist() == [b"k2", b"k3"]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("ends", ["jks", "p12"])
def test_mutual_tls_by_javas_stores(cluster: Brokers, kind: ReaderKind, ends: str, tmp_path: Path) -> None:
    """The broker is known by the truststore, and we by the keystore; without ours it does not let us in."""
    store = {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.location": str(STORES / f"trust.{ends}"),
        "ssl.truststore.password": "storepass",
        "ssl.keystore.location": str(STORES / f"key.{ends}"),
        "ssl.keystore.password": "storepass",
        "ssl.key.password": "keypass1" if ends == "jks" else "storepass",
    }
    kafka = settings(cluster, kind, **store)
    pem = kafka.client("consumer")
    (tmp_path / "own.pem").write_text(pem["ssl.certificate.pem"] + pem["ssl.key.pem"])
    (tmp_path / "trusted.pem").write_text(pem["ssl.ca.pem"])
    cluster.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "trusted.pem"))
    cluster.tls.verify_mode = ssl.CERT_REQUIRED
    cluster.tls.load_cert_chain(tmp_path / "own.pem")
    assert [offset for chunk in read(kafka, 5, 9) for offset in chunk.offset.tolist()] == [5, 6, 8]


def test_auto_takes_ours_where_it_can(cluster: Brokers) -> None:
    """Ours reads what it can, the other what ours has no login or no version for; the option decides otherwise."""
    assert check_reader(settings(cluster, "auto")).line.startswith("records are read by the native reader: it can read")
    assert check_reader(settings(cluster, "librdkafka")).kafka.reading.reader == "librdkafka"
    kerberos = settings(cluster, "auto", security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI")
    assert choose_reader(kerberos).kind == "librdkafka"
    assert "no logins by GSSAPI" in choose_reader(kerberos).reason
    with pytest.raises(FatalError, match=r"no logins by GSSAPI; set consumer\.reader=auto or librdkafka"):
        check_reader(with_reader(kerberos, "native"))
    with Brokers(ANCIENT) as old:
        found = check_reader(settings(old, "auto"))
        assert found.kafka.reading.reader == "librdkafka"
        assert "read by librdkafka: broker 127.0.0.1" in found.line
        assert "Fetch: the broker offers versions 0 to 3" in found.line
        with pytest.raises(UnsupportedBroker):
            check_reader(settings(old, "native"))
    with Brokers(FUTURE) as other, pytest.raises(UnsupportedBroker, match="Fetch: the broker offers versions 30 to 40"):
        check_reader(settings(other, "auto"))


def test_sizes_are_looked_at_by_ours_only(cluster: Brokers) -> None:
    """librdkafka shows no batches: sizes are unknown where it reads."""
    places = {("t", 0): [5]}
    assert RecordSizeSampler(settings(cluster, "native")).at(places).keys() == places.keys()
    assert RecordSizeSampler(settings(cluster, "librdkafka")).at(places) == {}


@pytest.mark.parametrize("server", ["[fe80::1]:9093", "SSL://[fe80::1]:9093"])
def test_addresses_of_ip_6_are_without_brackets(server: str) -> None:
    """With the listener's name in front of them, as Java takes them, or not."""
    assert ClusterAddress.of({"bootstrap.servers": server}).hosts == [("fe80::1", 9093)]


def test_addresses_are_the_same_for_the_same_settings() -> None:
    """What a cluster's connections are kept by does not depend on the order of settings, and shows no secret."""
    one, other = (ClusterAddress.of(dict(pairs)) for pairs in ((("a", "1"), ("b", "x")), (("b", "x"), ("a", "1"))))
    assert one == other
    assert hash(one) == hash(other)
    assert "x" not in repr(one).removeprefix("ClusterAddress")
