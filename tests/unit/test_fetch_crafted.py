"""Record batches that no client writes -> the records around them, and why they cannot be read: never a crash.

Each stands between two good batches. Their checksums are right where nothing else says so: a producer can write them.
"""

from __future__ import annotations

import gzip
import re
import struct
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import google_crc32c
import pyarrow as pa
import pytest

from connector.errors import FatalError, GapError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.consumer import assign_ranges
from connector.kafka.consumer.fetcher import FetchSettings, fetch_records
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.raw_batches import fetch_raw_batch
from connector.kafka.consumer.records import batch_reader
from connector.kafka.consumer.records.decompression import decompress_section
from connector.kafka.consumer.records.record_batches import check_leaps, drop_aborted, parse_batches
from connector.kafka.consumer.records.record_columns import RecordColumns
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch, UnreadableRecords
from connector.kafka.protocol.fetch import AbortedTransactions, FetchRequest
from connector.kafka.protocol.primitives import ResponseReader
from connector.settings import KafkaSettings
from connector.sink.job.map_task import map_task
from connector.sink.model.destination import WriterFactory
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import tell_driver, unpack_value
from tests.model.record_batches import GZIP, LZ4, NONE, SNAPPY, XERIAL, ZSTD, Record, batch, varint, written
from tests.servers.brokers import KAFKA_4, Brokers, Log
from tests.unit.sink_plans import plan

LIMIT = 1 << 16
GIB = 1 << 30
GOOD = written(Record(1, b"k", b"v"), 1)


def framed(body: bytes, count: int = 1, attributes: int = NONE, last: int = 0) -> bytes:
    """A batch at offset 1 whose checksum is right, whatever else."""
    after = struct.pack(">hiqqqhii", attributes, last, 0, 0, -1, -1, -1, count) + body
    rest = struct.pack(">ibI", 0, 2, google_crc32c.value(after)) + after
    return struct.pack(">qi", 1, len(rest)) + rest


def record(fields: bytes) -> bytes:
    """A record of these bytes."""
    return varint(len(fields)) + fields


def packed(codec: str, data: bytes) -> bytes:
    """Bytes as Arrow packs them."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def broken_checksum() -> bytes:
    """A value was changed on the way."""
    data = bytearray(framed(GOOD))
    data[-2] ^= 1
    return bytes(data)


def changed(at: int, byte: int) -> bytes:
    """A batch of which a byte was changed on the way, whatever its checksum covers."""
    data = bytearray(framed(GOOD))
    data[at] = byte
    return bytes(data)


ZEROS = bytes(1 << 22)
BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: framed(gzip.compress(ZEROS), attributes=GZIP),
    "gzip of gzips": lambda: framed(gzip.compress(ZEROS[: LIMIT // 2]) * 3, attributes=GZIP),
    "snappy": lambda: framed(pa.compress(ZEROS, "snappy", asbytes=True), attributes=SNAPPY),
    "lz4": lambda: framed(packed("lz4", ZEROS), attributes=LZ4),
    "zstd": lambda: framed(packed("zstd", ZEROS), attributes=ZSTD),
}
CRAFTED: dict[str, tuple[Callable[[], bytes], str]] = {
    "checksum": (broken_checksum, "CRC-32C"),
    "control bit": (lambda: changed(22, 0x20), "CRC-32C"),
    "1 GiB record": (lambda: framed(varint(GIB) + GOOD), "ends after its batch"),
    "1 GiB key": (lambda: framed(record(b"\0\0\0" + varint(GIB) + b"kv")), "fields do not end"),
    "1 GiB value": (lambda: framed(record(b"\0\0\0" + varint(-1) + varint(GIB) + b"v")), "fields do not end"),
    "2^62 value": (lambda: framed(record(b"\0\0\0" + varint(-1) + varint(2**62) + b"v")), "fields do not end"),
    "1 GiB block": (lambda: framed(b"\x80\x80\x80\x80\x04" + b"\0" * 40, attributes=SNAPPY), "says it holds"),
    "negative record": (lambda: framed(varint(-5) + GOOD), "negative size"),
    "truncated varint": (lambda: framed(b"\xff"), "records are said to be|fewer records"),
    "endless varint": (lambda: framed(b"\xff" * 30), "size is no number"),
    "endless field": (lambda: framed(record(b"\0" + b"\xff" * 20)), "fields do not end"),
    "too many records": (lambda: framed(GOOD, count=2**31 - 1), "2147483647 records are said to be"),
    "negative count": (lambda: framed(GOOD, count=-1), "says it has -1 records"),
    "too few records": (lambda: framed(GOOD + GOOD, count=1), "more bytes than its records"),
    "offset of another batch": (lambda: framed(written(Record(9, b"k", b"v"), 1)), "not up to its last"),
    "falling offsets": (lambda: framed(GOOD + GOOD, count=2), "do not rise"),
    "codec 5": (lambda: framed(GOOD, attributes=5), "compression 5"),
    "cut gzip": (lambda: framed(gzip.compress(GOOD)[:-6], attributes=GZIP), "too early"),
    "spoilt start of a second gzip": (
        lambda: framed(gzip.compress(GOOD) + b"\0" + gzip.compress(GOOD)[1:], count=2, attributes=GZIP),
        "2 records are said to be|fewer records",
    ),
    "no gzip": (lambda: framed(GOOD, attributes=GZIP), "cannot be unpacked"),
    "no snappy": (lambda: framed(GOOD, attributes=SNAPPY), "says it holds|cannot be unpacked"),
    "no lz4": (lambda: framed(GOOD, attributes=LZ4), "cannot be unpacked"),
    "no zstd": (lambda: framed(GOOD, attributes=ZSTD), "cannot be unpacked"),
    "xerial block behind the end": (
        lambda: framed(b"\x82SNAPPY\x00" + struct.pack(">iiI", 1, 1, 2**32 - 1) + GOOD, attributes=SNAPPY),
        "block that ends after",
    ),
    **{f"bomb of {name}": (make, "consumer.batch.unpacked.max.bytes") for name, make in BOMBS.items()},
}


def read(crafted: bytes, start: int = 0, end: int = 3, behind: int = 2) -> tuple[list[int], list[tuple[int, int, str]]]:
    """The offsets that are read, and what cannot be: the crafted batch has offset 1."""
    with Brokers(KAFKA_4) as cluster:
        log = cluster.logs["t", 0] = Log()
        for data in (
            batch([Record(0, b"k", b"a")], 0, 0),
            crafted,
            batch([Record(behind, b"k", b"b")], behind, behind),
        ):
            log.add(data)
        settings = {"bootstrap.servers": cluster.servers, "retry.backoff.ms": "0", "retry.backoff.max.ms": "0"}
        client = BrokerClient(ClusterAddress.of(settings))
        chunks = list(fetch_records(client, OffsetRange("t", 0, start, end), FetchSettings(max_unpacked_bytes=LIMIT)))
    rejected = [(x.first, x.last, x.reason) for chunk in chunks if (x := chunk.unreadable) is not None]
    return [offset for chunk in chunks for offset in chunk.offset.tolist()], rejected


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_batch_costs_no_other(name: str) -> None:
    """Records around it are read; it is told with offsets and reason, and gets no room for what it claims."""
    make, reason = CRAFTED[name]
    offsets, ((first, last, told),) = read(make())
    assert (offsets, first, last) == ([0, 2], 1, 1)
    assert re.search(reason, told), told


def test_a_spoilt_batch_ends_where_the_next_begins() -> None:
    """What it says of its last offset is as little worth as the rest."""
    assert read(changed(23, 0x70)) == ([0, 2], [(1, 1, "the record batch is not as it was written (CRC-32C)")])


def test_headers_of_any_number_cost_no_record() -> None:
    """A record whose headers have no end is read; only who asks for its headers learns that they are broken."""
    for headers in (varint(2**62) + b"\0\0", varint(-1), varint(1) + varint(GIB), varint(3) + b"\xff" * 10):
        made = framed(record(b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + headers))
        assert read(made) == ([0, 1, 2], [])


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, XERIAL, LZ4, ZSTD])
def test_all_codecs_are_read_up_to_the_limit(codec: int) -> None:
    """What is packed well within the limit is read, whatever packed it."""
    assert read(batch([Record(1, b"k", b"v" * (LIMIT - 100))], 1, 1, codec)) == ([0, 1, 2], [])


def test_several_members_of_gzip_are_one_batch() -> None:
    """Records in two members of gzip are all read, as gzip itself would."""
    rows = [written(Record(offset, b"k", b"v"), 1) for offset in (1, 2, 3)]
    body = gzip.compress(rows[0]) + gzip.compress(rows[1] + rows[2]) + b"\0\0"
    with Brokers(KAFKA_4) as cluster:
        cluster.logs["t", 0] = log = Log(start=1)
        log.add(framed(body, count=3, attributes=GZIP, last=2))
        client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers}))
        chunks = fetch_records(client, OffsetRange("t", 0, 1, 4), FetchSettings())
        assert [offset for chunk in chunks for offset in chunk.offset.tolist()] == [1, 2, 3]


def test_endless_members_of_gzip_cost_what_their_bytes_do() -> None:
    """A section of nothing but empty members, and zeros behind them, is gone through once: not once for each."""
    body = gzip.compress(b"", mtime=0) * 50_000 + gzip.compress(GOOD) + bytes(1 << 20)
    assert read(framed(body, attributes=GZIP)) == ([0, 1, 2], [])


@pytest.mark.parametrize("rest", [b"\0\0", b"\x1f", b"rubbish", gzip.compress(GOOD, mtime=0)[1:]])
def test_what_begins_no_member_behind_the_last_one_is_ignored(rest: bytes) -> None:
    """Bytes behind a gzip are no part of it, as Java's consumer has it, so its records are read."""
    assert read(framed(gzip.compress(GOOD) + rest, attributes=GZIP)) == ([0, 1, 2], [])


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_batches_that_cannot_be_unpacked_leave_nothing_behind(codec: int) -> None:
    """The room for what a batch would unpack to is given back where its bytes are spoilt."""
    whole = batch([Record(1, b"k", b"v" * 1000)], 1, 1, codec)
    section = memoryview(whole[61:-8] + b"\xff" * 8)
    tracemalloc.start()
    try:
        for _ in range(50):
            with pytest.raises(UnreadableRecords):
                decompress_section(section, codec, LIMIT)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < LIMIT


def test_one_bad_batch_among_many_is_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches around it are read together, in as few steps as it takes to find it."""
    steps = []
    read_all = batch_reader.read_records

    def count(*given: Any) -> Any:
        steps.append(len(given[1]))
        return read_all(*given)

    monkeypatch.setattr(batch_reader, "read_records", count)
    good = [batch([Record(offset, b"k", b"v")], offset, offset) for offset in range(1000)]
    good[617] = bad_at(617)
    data = memoryview(b"".join(good))
    found = list(batch_reader.read_batches(parse_batches(data), data, 0, 1000, LIMIT))
    offsets = [offset for some in found if isinstance(some, RecordColumns) for offset in some.offset.tolist()]
    assert offsets == [offset for offset in range(1000) if offset != 617]
    assert [(some.first, some.last) for some in found if isinstance(some, UnreadableBatch)] == [(617, 617)]
    assert len(steps) <= 2 * 11


def bad_at(offset: int) -> bytes:
    """A batch whose record has a negative size."""
    made = framed(varint(-5) + GOOD)
    return struct.pack(">q", offset) + made[8:]


def test_offsets_of_others_are_not_told() -> None:
    """Of a batch that cannot be read each task tells the offsets that it was to read."""
    made = framed(varint(-5), last=1)
    assert [rejected[:2] for rejected in read(made, 0, 2, behind=3)[1]] == [(1, 1)]
    assert [rejected[:2] for rejected in read(made, 2, 3, behind=3)[1]] == [(2, 2)]


def test_a_batch_whose_frame_is_broken_stops() -> None:
    """Where nobody can tell where the next batch begins, reading stops and says why."""
    for made, reason in ((framed(GOOD)[:8] + struct.pack(">i", 9) + framed(GOOD)[12:], "a record batch of 9 bytes"),):
        with pytest.raises(FatalError, match=f"t-0 from offset 0: {reason}"):
            read(made)
    old = bytearray(framed(GOOD))
    old[16] = 1
    with pytest.raises((FatalError, GapError), match="message format 1"):
        read(bytes(old))


def spoilt(at: int, byte: int) -> Brokers:
    """Three records, one per batch; of the second a byte is not as it was written."""
    cluster = Brokers(KAFKA_4)
    log = cluster.logs["t", 0] = Log()
    for offset in range(3):
        log.add(batch([Record(offset, b"k", b"v")], offset, offset))
    data = bytearray(log.batches[1][3])
    data[at] = byte
    log.batches[1] = (*log.batches[1][:3], bytes(data))
    return cluster


def read_all(cluster: Brokers, most: int = 1 << 20) -> list[int]:
    """The offsets that are read of three."""
    settings = {"bootstrap.servers": cluster.servers, "retry.backoff.ms": "0", "retry.backoff.max.ms": "0"}
    client = BrokerClient(ClusterAddress.of(settings))
    chunks = fetch_records(client, OffsetRange("t", 0, 0, 3), FetchSettings(partition_bytes=most))
    return [offset for chunk in chunks for offset in chunk.offset.tolist()]


# What no checksum covers: base offset (low and high), length, format.
BARE = {
    "falls": (7, 0),
    "rises": (7, 2),
    "leaps": (2, 1),
    "is negative": (0, 0xFF),
    "length": (11, 9),
    "format": (16, 1),
}


@pytest.mark.parametrize("most", [1, 1 << 20])
@pytest.mark.parametrize("what", BARE)
def test_nothing_is_passed_over_where_no_checksum_is(what: str, most: int) -> None:
    """A batch that is somewhere else, or out of order, is fetched again, then it stops: none is skipped or doubled.

    Alone in its fetch, one whose offset is a little too high is a gap as compaction leaves them: nobody can tell.
    """
    if (what, most) == ("rises", 1):
        return
    with spoilt(*BARE[what]) as cluster:
        with pytest.raises(FatalError, match=r"out of order|after the log's end|of 9 bytes|format 1|ends at offset"):
            read_all(cluster, most)
        good = batch([Record(1, b"k", b"v")], 1, 1)

        def mend(asked: Brokers) -> None:
            if sum(one.api == 1 for one in asked.asked) == 2 + (most == 1):
                asked.logs["t", 0].batches[1] = (1, 1, 0, good)

        cluster.asked.clear()
        cluster.on_fetch = mend
        assert read_all(cluster, most) == [0, 1, 2]


@pytest.mark.parametrize("what", ["falls", "is negative"])
def test_a_batch_that_fell_at_the_start_of_a_fetch_is_not_passed_over(what: str) -> None:
    """In front of what was asked for it looks as if it had been read: what follows leaves its offsets out."""
    with spoilt(*BARE[what]) as cluster:
        settings = {"bootstrap.servers": cluster.servers, "retry.backoff.ms": "0", "retry.backoff.max.ms": "0"}
        client = BrokerClient(ClusterAddress.of(settings))
        with pytest.raises(FatalError, match="out of order"):
            list(fetch_records(client, OffsetRange("t", 0, 1, 3), FetchSettings()))


def test_a_batch_written_since_the_end_was_told_is_no_leap() -> None:
    """A broker tells where its log ends before it reads: what comes in between follows without a gap."""
    data = memoryview(b"".join(batch([Record(o, b"k", b"v")], o, o) for o in (3, 7, 8, 9)))
    check_leaps(parse_batches(data), 2, 7)
    check_leaps(parse_batches(data), 2, -1)
    with pytest.raises(UnreadableRecords, match="at offset 7 is after the log's end, 6"):
        check_leaps(parse_batches(data), 2, 6)


def test_an_unreadable_marker_makes_no_committed_record_disappear() -> None:
    """Behind it nobody can tell whether its producer's next records were given up: they are told, up to the next."""

    def one(offset: int, producer: int, marker: int | None = None) -> bytes:
        return batch([Record(offset, b"k", b"v")], offset, offset, producer=producer, transactional=True, marker=marker)

    marker = bytearray(one(1, 7, marker=0))
    marker[-1] ^= 1
    later = [one(2, 7), one(3, 8), one(4, 7, marker=1), one(5, 7), one(6, 9), one(7, 9, marker=0), one(8, 9)]
    data = memoryview(b"".join([one(0, 7), bytes(marker), *later]))
    aborted = AbortedTransactions.of([(7, 0), (9, 6)])
    kept = drop_aborted(parse_batches(data), aborted, data)
    found = list(batch_reader.read_batches(kept, data, 0, 9, LIMIT))
    assert [offset for some in found if isinstance(some, RecordColumns) for offset in some.offset.tolist()] == [3, 5, 8]
    assert [(some.first, some.reason[:17]) for some in found if isinstance(some, UnreadableBatch)] == [
        (1, "the record batch "),
        (2, "whether the trans"),
    ]


def test_endless_aborted_transactions_cost_no_objects() -> None:
    """A broker may list millions: those of the fetch's producers are looked at, and none of them becomes an object."""
    many, data = 1_000_000, batch([Record(5, b"k", b"v")], 5, 5, producer=7, transactional=True)
    rows = struct.pack(">qq", 7, 3) + struct.pack(">qq", 8, 4) * (many - 1)
    answer = struct.pack(">ihiih", 0, 0, 0, 1, 1) + b"t" + struct.pack(">iihqqq", 1, 0, 0, 6, 6, 0)
    answer += struct.pack(">i", many) + rows + struct.pack(">ii", -1, len(data)) + data
    tracemalloc.start()
    try:
        fetched = FetchRequest(("t", 0), 5).parse(11, ResponseReader(memoryview(answer))).partition
        assert fetched is not None
        kept = drop_aborted(parse_batches(fetched.data), fetched.aborted, fetched.data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 0
    assert most < 3 * len(answer)


def test_a_batch_that_cannot_be_read_becomes_a_dead_letter() -> None:
    """The map task goes on behind it, names it with its offsets, and counts what reading took."""
    with Brokers(KAFKA_4) as cluster:
        log = cluster.logs["t", 0] = Log()
        for data in (batch([Record(0, None, b'{"id":1}')], 0, 0), broken_checksum()):
            log.add(data)
        log.add(batch([Record(2, None, b'{"id":2}')], 2, 2))
        kafka = KafkaSettings(cluster.servers, (), None, "", "earliest", {}, {}, {})
        feed = assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 3}, 1)
        task = map_task(
            plan(assignment=feed, routes={}), cast("WriterFactory", cast("Any", SimpleNamespace(follows_keys=0)))
        )
        outputs = list(task([0]))
        assert fetch_raw_batch(kafka, ("t", 0), 1) == broken_checksum()
    result = JobResult().add(map(unpack_value, tell_driver(outputs)))
    (letter,) = result.dead_letters
    assert (letter.topic, letter.partition, letter.offset) == ("t", 0, 1)
    assert letter.stage == "KAFKA_CONSUME"
    assert letter.reason.startswith("the record batch of offsets 1 to 1 cannot be read: the record batch is not as it")
    metrics = result.metrics
    assert (metrics.dead, metrics.events) == (1, 3)
    assert metrics.fetch.fetches >= 1
    assert metrics.fetch.epochs == {("t", 0): (2, 0)}
