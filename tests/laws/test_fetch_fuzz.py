"""Spoilt record batches -> the records that librdkafka reads, or an error for both; never a crash.

librdkafka reads them from a broker double, as a consumer does. It is looser in places that are named below; what it
refuses we refuse, and what both read is the same. ICEBRIDGE_FUZZ_S (seconds) is how long the fuzzing goes on, with
other examples each time; else it is one fixed round. ICEBRIDGE_FUZZ_TALLY names a file that gets a line of figures,
whether the time, a finding or a signal ends the run; those of one that crashes stay in a file beside it (`.running`).
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import google_crc32c
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from connector.kafka.consumer.records.batch_reader import read_batches
from connector.kafka.consumer.records.decompression import decompress_section
from connector.kafka.consumer.records.record_batches import parse_batches
from connector.kafka.consumer.records.record_headers import read_headers
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch, UnreadableRecords
from tests.harness.rounds import draws
from tests.harness.tally import add_line
from tests.model.record_batches import GZIP, LZ4, NONE, SNAPPY, XERIAL, ZSTD, Record, varint, written
from tests.servers.brokers import Brokers, Log

FUZZ_S = float(os.environ.get("ICEBRIDGE_FUZZ_S", "0"))
TALLY = os.environ.get("ICEBRIDGE_FUZZ_TALLY")
OFFERED = {0: (0, 7), 1: (4, 11), 2: (1, 5), 3: (1, 7), 18: (0, 0)}
PARTITIONS = 60
START_S, QUIET_S = 10.0, 0.3
"""How long librdkafka is waited for: until it has begun, and then between what it says."""

LIMIT = 1 << 20
ATTRIBUTES_AT, HEADER_BYTES = 21, 61
STRICTER = (
    "more bytes than",
    "fewer records than",
    "a record that ends after its batch",
    "do not rise",
    "says it has",
    "of negative size",
    "whose size is no number",
    "are said to be",
    "fields do not end",
    "Truncated",
    "requires too much memory",
)
"""What we refuse and librdkafka may not look at: it stops where records or packed bytes end (a record that goes on
behind them and all after it are lost without a word), and at the count, and reads a record field by field, whatever
its size says. It takes windows of zstd beyond 128 MiB, which no producer asks for and Java refuses."""

STREAMS = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
Row = tuple[int, bytes | None, bytes | None]
SIZES = (-(2**63), -(2**31), -2, -1, 0, 1, 7, 200, 2**20, 2**30, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)


def spoilt_batch(chance: random.Random) -> bytes:
    """A batch at offset 0 in which some bytes are not as a client writes them; its checksum is right."""
    count = chance.randint(1, 5)
    body = bytearray().join(written(_record(chance, offset), 0) for offset in range(count))
    if chance.random() < 0.6:
        _spoil(chance, body)
        if chance.random() < 0.4 and len(body) > 2:
            inner = bytes(body[chance.randint(1, 2) :])
            body, count = bytearray(varint(len(inner)) + inner), 1
    codec = chance.choice([NONE, NONE, NONE, GZIP, SNAPPY, XERIAL, LZ4, ZSTD])
    packed = bytearray(PACK[codec](bytes(body)))
    if codec != NONE and chance.random() < 0.4:
        _spoil(chance, packed)
    if chance.random() < 0.1:
        count = chance.choice([0, 1, count + 1, 2**31 - 1])
    attributes = SNAPPY if codec == XERIAL else codec
    after = struct.pack(">hiqqqhii", attributes, chance.choice([count - 1, 5, 5, 5]), 0, 0, -1, -1, -1, count) + packed
    rest = struct.pack(">ibI", 0, 2, google_crc32c.value(bytes(after))) + after
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(chance: random.Random, offset: int) -> Record:
    def some() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 1, 5, 70, 200]))

    headers = tuple((f"h{i}", some()) for i in range(chance.choice([0, 0, 1, 3])))
    return Record(offset, some(), some(), headers)


def _spoil(chance: random.Random, body: bytearray) -> None:
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(body)) if body else 0
        put = varint(chance.choice(SIZES)) if chance.random() < 0.5 else chance.randbytes(chance.randint(0, 3))
        body[at : at + chance.randint(0, 3)] = put


def _stream(codec: str) -> Callable[[bytes], bytes]:
    def pack(body: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(body)
        return bytes(sink.getvalue().to_pybytes())

    return pack


def _xerial(body: bytes) -> bytes:
    block = pa.compress(body, "snappy", asbytes=True)
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block


PACK: dict[int, Callable[[bytes], bytes]] = {
    NONE: lambda body: body,
    GZIP: lambda body: gzip.compress(body, mtime=0),
    SNAPPY: lambda body: bytes(pa.compress(body, "snappy", asbytes=True)),
    XERIAL: _xerial,
    LZ4: _stream("lz4"),
    ZSTD: _stream("zstd"),
}


def read_here(data: bytes) -> list[Row] | str:
    """What our reader makes of a batch: its records, or why it cannot be read."""
    try:
        view = memoryview(data)
        rows: list[Row] = []
        for some in read_batches(parse_batches(view), view, 0, 2**62, LIMIT):
            if isinstance(some, UnreadableBatch):
                return some.reason
            read_headers(some, ["h0", "h2"])  # whatever they hold
            rows += zip(some.offset.tolist(), some.key.to_pylist(), some.value.to_pylist(), strict=True)
    except UnreadableRecords as error:
        return str(error)
    return rows


def read_there(batches: list[bytes], quiet_s: float = QUIET_S) -> list[list[Row] | None]:
    """What librdkafka makes of each batch; None for one that it cannot read, or says nothing of for so long.

    Some it gives again and again from their start, for ever: rows whose offsets do not rise are no reading.
    """
    with Brokers(OFFERED) as cluster:
        for partition, data in enumerate(batches):
            cluster.logs["t", partition] = Log()
            cluster.logs["t", partition].add(data)
        settings = {"group.id": "g", "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True}
        waits = {"fetch.wait.max.ms": 5, "fetch.error.backoff.ms": 1, "log_level": 0, "auto.offset.reset": "error"}
        consumer = Consumer({"bootstrap.servers": cluster.servers, **settings, **waits})
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(len(batches))])
        found: list[list[Row] | None] = [[] for _ in batches]
        open_, quiet = set(range(len(batches))), time.monotonic() + START_S
        while open_ and time.monotonic() < quiet:
            messages = consumer.consume(500, 0.02)
            if any(message.partition() in open_ for message in messages):
                quiet = time.monotonic() + quiet_s
            for message in messages:
                partition, error = message.partition(), message.error()
                rows = found[partition]
                if partition not in open_ or rows is None:
                    continue
                if error is not None:
                    found[partition] = rows if error.code() == KafkaError._PARTITION_EOF else None
                    open_.discard(partition)
                elif rows and message.offset() <= rows[-1][0]:
                    found[partition] = None
                    open_.discard(partition)
                    consumer.pause([TopicPartition("t", partition)])  # it would take the processor from the others
                else:
                    rows.append((message.offset(), message.key(), message.value()))
        consumer.close()
        # It asks again, and says nothing, where a batch seems to be cut off.
        return [None if partition in open_ else rows for partition, rows in enumerate(found)]


def never_ends(data: bytes) -> bool:
    """Whether librdkafka 2.16 unpacks a batch for ever, and cannot even be closed: a gzip without its end."""
    (attributes,) = struct.unpack_from(">h", data, ATTRIBUTES_AT)
    if attributes & 7 != GZIP:
        return False
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacking.decompress(data[HEADER_BYTES:], LIMIT)
    except zlib.error:
        return False
    return not unpacking.eof


def ends_librdkafka(data: bytes) -> bool:
    """Whether librdkafka 2.16 ends its whole process (an assertion of its own): a packed batch that holds nothing."""
    (attributes,) = struct.unpack_from(">h", data, ATTRIBUTES_AT)
    codec, packed = attributes & 7, data[HEADER_BYTES:]
    if codec == NONE:
        return False
    try:
        if codec == SNAPPY:
            return not len(decompress_section(memoryview(packed), codec, LIMIT))
        with pa.CompressedInputStream(pa.BufferReader(packed), STREAMS[codec]) as stream:
            return not stream.read(1)
    except (OSError, UnreadableRecords):
        return codec == LZ4


def check(seed: int, seen: Counter[str]) -> None:
    """One round: as many batches as partitions."""
    chance = random.Random(seed)
    batches = [spoilt_batch(chance) for _ in range(PARTITIONS)]
    endless = [data for data in batches if never_ends(data)]
    assert all(isinstance(read_here(data), str) for data in endless), f"seed {seed}: half a gzip is read"
    fatal = [data for data in batches if ends_librdkafka(data)]
    seen["read by nobody else"] += len(fatal)
    for data in fatal:
        read_here(data)  # whatever it is
    batches = [data for data in batches if data not in endless and data not in fatal]
    for data, there in zip(batches, read_there(batches), strict=True):
        here = read_here(data)
        if isinstance(here, str):
            loose = there is not None and not any(text in here for text in STRICTER)
            assert not loose, f"seed {seed}: librdkafka reads what we do not ({here}): {data.hex()}"
            seen["refused by us" if there is not None else "refused by both"] += 1
        else:
            # Where others take the processor it may have had no time to say anything.
            (said,) = [there] if there is not None else read_there([data], START_S)
            assert said is not None, f"seed {seed}: we read what librdkafka does not: {data.hex()}"
            assert here == said, f"seed {seed}: {data.hex()}"
            seen["read"] += 1


class FuzzRun:
    """Rounds, their results, and a line of the tally whatever ends them."""

    def __init__(self, first: int, tally: str | None) -> None:
        self.seen: Counter[str] = Counter()
        self._first, self._tally, self._began = first, Path(tally) if tally else None, time.monotonic()

    @property
    def seconds(self) -> int:
        """For how long it has gone on."""
        return round(time.monotonic() - self._began)

    def check(self, seed: int) -> None:
        """One round; what goes wrong tells its seed."""
        if self._tally is not None:
            self._running.write_text(json.dumps({**self._figures, "seed": seed}) + "\n", encoding="utf-8")
        try:
            check(seed, self.seen)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt | SystemExit):
                self.seen["findings"] += 1
            error.add_note(f"seed {seed}; again: check({seed}, Counter())")
            raise

    @contextmanager
    def tallied(self) -> Iterator[None]:
        """Add the figures to the tally at the end, also where that is a finding, Ctrl-C or SIGTERM."""
        usual = signal.signal(signal.SIGTERM, _leave)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, usual)
            if self._tally is not None:
                add_line(self._tally, self._figures)
                self._running.unlink(missing_ok=True)

    @property
    def _figures(self) -> dict[str, object]:
        return {"first_seed": self._first, "seconds": self.seconds, **self.seen}

    @property
    def _running(self) -> Path:
        assert self._tally is not None
        return self._tally.with_suffix(".running")


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


@pytest.mark.timeout(int(FUZZ_S) + 300)
def test_what_librdkafka_reads_we_read_and_nothing_else() -> None:
    """Of batches with sizes and bytes that no client writes, both read the same records, or neither does."""
    first = seed = random.SystemRandom().randrange(2**32) if FUZZ_S else 1
    run = FuzzRun(first, TALLY)
    with run.tallied():
        for number in range(draws(5)):
            run.check(seed + number)
        while run.seconds < FUZZ_S:
            seed += draws(5)
            run.check(seed)
    assert run.seen["read"] > 0 < run.seen["refused by both"], run.seen


ENDLESS_SEED, ENDLESS_PARTITION = 100_328, 42
"""A batch that librdkafka 2.16 gives again and again from its start, found by hours of fuzzing."""


@pytest.mark.timeout(60)
def test_rows_that_come_again_and_again_are_no_reading() -> None:
    """librdkafka goes back to the start of a batch that it has read for ever; neither reads it, and nobody waits."""
    chance = random.Random(ENDLESS_SEED)
    batches = [spoilt_batch(chance) for _ in range(PARTITIONS)]
    kept = [data for data in batches if not never_ends(data) and not ends_librdkafka(data)]
    endless = kept[ENDLESS_PARTITION]
    assert isinstance(read_here(endless), str)
    assert read_there([endless]) == [None]


@pytest.mark.parametrize(("ended_by", "findings"), [(AssertionError("wrong"), 1), (SystemExit(143), 0)])
def test_a_run_that_ends_early_is_tallied(
    ended_by: BaseException, findings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding tells its seed, and neither it nor a signal takes the hours before it from the tally."""
    tally = tmp_path / "tally.jsonl"

    def spoil(seed: int, seen: Counter[str]) -> None:
        seen["read"] += 1
        if seed == 8:
            raise ended_by

    monkeypatch.setitem(globals(), "check", spoil)
    run = FuzzRun(7, str(tally))
    with pytest.raises(type(ended_by)) as told, run.tallied():
        run.check(7)
        run.check(8)
    assert any("seed 8" in note for note in told.value.__notes__)
    line = json.loads(tally.read_text())
    assert (line["first_seed"], line["read"], line.get("findings", 0)) == (7, 2, findings)
    assert [one.name for one in tmp_path.iterdir()] == ["tally.jsonl"]
