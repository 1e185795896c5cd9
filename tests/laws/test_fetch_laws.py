"""Laws of reading record batches: what was packed comes out, and garbage never passes for records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.kafka.consumer.offset_ranges import OffsetRange, assign_to_tasks
from connector.kafka.consumer.records import record_bounds
from connector.kafka.consumer.records.batch_reader import read_batches
from connector.kafka.consumer.records.record_batches import HEADER_BYTES, decompress, drop_aborted, parse_batches
from connector.kafka.consumer.records.record_bounds import BatchSection, BatchSections
from connector.kafka.consumer.records.record_columns import read_records as records
from connector.kafka.consumer.records.record_headers import read_headers
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch, UnreadableRecords
from connector.kafka.protocol.fetch import AbortedTransactions
from tests.model.record_batches import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL,
    ZSTD,
    Record,
    batch,
    read_records,
    varint,
    written,
)

BYTES = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
HEADER = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
HEADERS = (st.lists(HEADER, max_size=2) | st.lists(HEADER, min_size=15, max_size=22)).map(tuple)


@attrs.frozen
class Made:
    """A fetch's bytes, what of it was given up, and the records that a reader may see."""

    data: bytes
    aborted: tuple[tuple[int, int], ...]
    seen: list[Record]


@st.composite
def fetches(draw: Any) -> Made:
    """Batches with gaps, of several producers, some of whose transactions are given up."""
    at = draw(st.integers(0, 5))
    data, seen = b"", []
    open_: dict[int, list[Record]] = {}
    first: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.sampled_from([1, 2, 3]))
        codec = draw(st.sampled_from([NONE, NONE, GZIP, SNAPPY, XERIAL, LZ4, ZSTD]))
        if producer in open_ and draw(st.booleans()):
            marker = draw(st.sampled_from([0, 1]))
            data += batch([], at, at, producer=producer, transactional=True, marker=marker)
            if marker == 0:
                aborted.append((producer, first[producer]))
                gone = open_[producer]
                seen = [record for record in seen if record not in gone]
            del open_[producer], first[producer]
            at += 1
            continue
        transactional = producer != 3
        base, made = at, []
        for _ in range(draw(st.integers(0, 5))):
            at += draw(st.integers(0, 3))  # compaction leaves gaps
            made.append(Record(at, draw(BYTES), draw(BYTES), draw(HEADERS)))
            at += 1
        last = max(base, at - 1) + draw(st.integers(0, 2))
        at = last + 1
        data += batch(made, base, last, codec, producer, transactional)
        seen += made
        if transactional:
            open_.setdefault(producer, []).extend(made)
            first.setdefault(producer, base)
    # What a transaction that is still open wrote is behind the last stable offset: no broker sends it.
    for gone in open_.values():
        seen = [record for record in seen if record not in gone]
    aborted += first.items()
    return Made(data, tuple(aborted), seen)


def read(made: Made, first: int, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Read as the tasks do."""
    data = memoryview(made.data)
    kept = drop_aborted(parse_batches(data), AbortedTransactions.of(made.aborted), data)
    parts = [decompress(one, data) for one in kept]
    sections, start = [], 0
    for one, part in zip(kept, parts, strict=True):
        sections.append(BatchSection(start, start + len(part), one.count, one.base))
        start += len(part)
    found = records(b"".join(parts), BatchSections.of(sections), first, end)
    return list(zip(found.offset.tolist(), found.key.to_pylist(), found.value.to_pylist(), strict=True))


@given(fetches(), st.integers(0, 30), st.integers(0, 60))
def test_what_was_committed_comes_out(made: Made, first: int, span: int) -> None:
    """Of any batches the committed records of the range come out, in order, keys and values as they were."""
    wanted = [(r.offset, r.key, r.value) for r in made.seen if first <= r.offset < first + span]
    assert read(made, first, first + span) == sorted(wanted)


@given(fetches(), st.data())
def test_a_cut_fetch_gives_whole_batches_only(made: Made, data: Any) -> None:
    """A fetch that ends within a batch gives the batches before it, and no half one."""
    cut = data.draw(st.integers(0, len(made.data)))
    found = list(parse_batches(memoryview(made.data)[:cut]))
    assert found == [one for one in parse_batches(memoryview(made.data)) if one.end <= cut]


@given(fetches(), st.data())
def test_what_was_changed_on_the_way_is_never_passed_over(made: Made, data: Any) -> None:
    """Of a fetch of which a byte was changed every committed record is read, told as unreadable, or fetched again.

    But for the offset that a batch counts from, which no checksum covers: one that moves within a gap is not seen.
    """
    bases = {one.start - HEADER_BYTES + place for one in parse_batches(memoryview(made.data)) for place in range(8)}
    changed = bytearray(made.data)
    places = [place for place in range(len(changed)) if place not in bases]
    for place in data.draw(st.sets(st.sampled_from(places), min_size=1, max_size=2) if places else st.just(set())):
        changed[place] ^= data.draw(st.integers(1, 255))
    view = memoryview(bytes(changed))
    with suppress(UnreadableRecords):
        listed = parse_batches(view)
        behind = int(listed.last[-1]) + 1 if len(listed) else 0
        seen: set[int] = set()
        for some in read_batches(
            drop_aborted(listed, AbortedTransactions.of(made.aborted), view), view, 0, 2**62, 1 << 20
        ):
            unreadable = isinstance(some, UnreadableBatch)
            seen.update(range(some.first, some.last + 1) if unreadable else some.offset.tolist())
        assert {one.offset for one in made.seen if one.offset < behind} <= seen


@given(fetches(), st.data())
def test_garbage_is_an_error_and_never_other_records(made: Made, data: Any) -> None:
    """Keys and values that were changed on the way are an error: what is read is what was written."""
    changed = bytearray(made.data)
    for _ in range(data.draw(st.integers(1, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UnreadableRecords):
        found = {row[1:] for row in read(attrs.evolve(made, data=bytes(changed)), 0, 2**62)}
        assert found <= {row[1:] for row in read(attrs.evolve(made, aborted=()), 0, 2**62)}


LARGE = st.sampled_from([-(2**63), -(2**31), -2, -1, 1, 7, 200, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1])


@st.composite
def bodies(draw: Any) -> tuple[bytes, int]:
    """Bytes of one batch's records that no client would write, and how many they are said to be.

    Bytes are changed, left out and put in, numbers above all: sizes that reach beyond record and batch.
    """
    count = draw(st.integers(1, 4))
    body = bytearray().join(written(Record(i, draw(BYTES), draw(BYTES), draw(HEADERS)), 0) for i in range(count))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body) - 1)) if body else 0
        removed = draw(st.integers(0, 3))
        body[at : at + removed] = draw(st.binary(max_size=3) | LARGE.map(varint))
    if draw(st.booleans()):
        # The sizes of records are mended, so that what is within them is looked at.
        inner = bytes(body[draw(st.integers(1, 2)) :])
        body, count = bytearray(varint(len(inner)) + inner), 1
    return bytes(body), draw(st.just(count) | st.sampled_from([0, -1, 2**31 - 1]))


@contextmanager
def side_by_side(batches: int, records: int = 2) -> Iterator[None]:
    """Records are found side by side from so many batches on, and within batches every so many records."""
    usual = record_bounds._FEW_PATHS, record_bounds._PATH_RECORDS
    record_bounds._FEW_PATHS, record_bounds._PATH_RECORDS = batches, records
    try:
        yield
    finally:
        record_bounds._FEW_PATHS, record_bounds._PATH_RECORDS = usual


@given(bodies(), st.sampled_from([1, 2]))
def test_no_bytes_are_read_that_are_not_the_records(made: tuple[bytes, int], batches: int) -> None:
    """Whatever a batch holds, its records are those that a reader of single bytes finds, or it is an error for both."""
    with side_by_side(batches):
        _check_body(*made)


DECOYS = st.sampled_from([b"\x80\x01\0", b"\xb4\x01\0", b"\x90\x02\0\0\0", b"\x04\0", b"\xff\xff\0", b"\0" * 9, b"{}"])
"""What might be the beginning of a record."""
LONG = st.lists(DECOYS | st.binary(max_size=3) | st.integers(20, 150).map(bytes), max_size=8).map(b"".join)


@given(st.lists(LONG, min_size=1, max_size=40), st.integers(1, 4), st.sampled_from([1, 2, 5]), st.data())
def test_what_looks_like_a_record_is_none(values: list[bytes], batches: int, records: int, data: Any) -> None:
    """Values that hold what a record begins with are read as they are, and spoilt ones as a reader of bytes finds."""
    body = b"".join(written(Record(i, b"k", value), 0) for i, value in enumerate(values))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body) - 1))
        body = body[:at] + data.draw(st.binary(max_size=2)) + body[at + 1 :]
    with side_by_side(batches, records):
        _check_body(body, len(values))


@pytest.mark.parametrize("size", [1, 70, 600, 3_000, 9_000, 20_000])
def test_records_of_long_batches_are_found(size: int) -> None:
    """Many records of a batch are found whatever their sizes are, also where one in a hundred is far larger."""
    values = [b"\xb4\x01\0"[: i % 4] + b"x" * (size if i % 100 else 50 * size) for i in range(1_500)]
    body = b"".join(written(Record(i, b"%d" % i, value), 0) for i, value in enumerate(values))
    found = records(memoryview(body), BatchSections.of([BatchSection(0, len(body), len(values), 0)]), 0, 2**62)
    assert found.value.to_pylist() == values
    assert found.key.to_pylist() == [b"%d" % i for i in range(len(values))]


def _check_body(body: bytes, count: int) -> None:
    try:
        wanted = read_records(body, count, 0)
    except ValueError:
        wanted = None
    try:
        found = records(body, BatchSections.of([BatchSection(0, len(body), count, 0)]), 0, 2**62)
    except UnreadableRecords:
        assert wanted is None
        return
    assert wanted is not None
    read = zip(found.offset.tolist(), found.key.to_pylist(), found.value.to_pylist(), strict=True)
    assert list(read) == [(one.offset, one.key, one.value) for one in wanted]
    names = ["", "a", *{name.decode("utf-8", "ignore") for one in wanted for name, _ in one.headers or ()}]
    told = read_headers(found, names)
    assert told.broken.tolist() == [one.headers is None for one in wanted]
    for name, column in zip(names, told.columns, strict=True):
        first = [dict(reversed(one.headers or ())).get(name.encode()) for one in wanted]
        assert column.to_pylist() == first


@given(st.lists(bodies(), max_size=6), st.sampled_from([1, 3, 9]))
def test_many_batches_are_read_as_each_is(made: list[tuple[bytes, int]], batches: int) -> None:
    """Records of batches that are read in one step are those of each batch; one that is none is an error of all."""
    sections, wanted, start = [], [], 0
    for place, (body, count) in enumerate(made):
        sections.append(BatchSection(start, start + len(body), count, 2**32 * place))
        start += len(body)
        with suppress(ValueError):
            wanted.append([(one.offset, one.key, one.value) for one in read_records(body, count, 2**32 * place)])
    with side_by_side(batches):
        try:
            found = records(b"".join(body for body, _ in made), BatchSections.of(sections), 0, 2**62)
        except UnreadableRecords:
            assert len(wanted) < len(made)
            return
    assert len(wanted) == len(made)
    read = zip(found.offset.tolist(), found.key.to_pylist(), found.value.to_pylist(), strict=True)
    assert list(read) == [one for some in wanted for one in some]


RANGES = st.lists(
    st.builds(
        lambda topic, partition, start, size: OffsetRange(topic, partition, start, start + size),
        st.sampled_from("ab"),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 500),
    ),
    max_size=9,
    unique_by=lambda r: (r.topic, r.partition),
)


@given(RANGES, st.integers(1, 8))
def test_shares_hold_every_offset_once_and_are_fair(ranges: list[OffsetRange], tasks: int) -> None:
    """However ranges are dealt out, each offset is in one share, and no share is more than twice the fair one."""
    dealt = assign_to_tasks(ranges, tasks)
    offsets = sorted((r.topic, r.partition, o) for share in dealt for r in share for o in range(r.start, r.end))
    assert offsets == sorted((r.topic, r.partition, o) for r in ranges for o in range(r.start, r.end))
    assert len(dealt) <= tasks
    fair = -(-len(offsets) // tasks)
    assert all(0 < sum(map(len, share)) <= 2 * fair for share in dealt)


def test_a_marker_that_compaction_emptied_is_passed_over() -> None:
    """A control batch without its record ends nothing, and is not read."""
    made = batch([Record(0, b"k", b"v")], 0, 0) + batch(
        [], 1, 1, producer=1, transactional=True, marker=0, emptied=True
    )
    assert read(Made(made, (), []), 0, 9) == [(0, b"k", b"v")]


@given(fetches(), st.data())
def test_whatever_a_batch_says_it_is_read_or_an_error(made: Made, data: Any) -> None:
    """Batches whose checksums are right and nothing else needs to be are read, or are an error that says so."""
    whole = bytearray(made.data)
    found = list(parse_batches(memoryview(made.data)))
    if found:
        one = data.draw(st.sampled_from(found))
        begin = one.start - HEADER_BYTES
        for _ in range(data.draw(st.integers(1, 6))):
            # Behind length and format: attributes, counts, and what is packed.
            whole[data.draw(st.integers(begin + 21, one.end - 1))] = data.draw(st.integers(0, 255))
        struct.pack_into(">I", whole, begin + 17, google_crc32c.value(bytes(whole[begin + 21 : one.end])))
    with suppress(UnreadableRecords):
        read(attrs.evolve(made, data=bytes(whole)), 0, 2**62)


def test_a_made_up_count_of_headers_is_not_counted_through() -> None:
    """A record that says it has 2^62 headers has broken ones, and its neighbours keep theirs."""
    good = [written(Record(i, b"k", b"v", (("h", b"%d" % i),)), 0) for i in (0, 2)]
    fields = b"\0\0" + varint(1) + varint(1) + b"k" + varint(1) + b"v" + varint(2**62) + b"\0\0" * 9
    body = good[0] + varint(len(fields)) + fields + good[1]
    told = read_headers(records(body, BatchSections.of([BatchSection(0, len(body), 3, 0)]), 0, 9), ["h"])
    assert told.broken.tolist() == [False, True, False]
    assert told.columns[0].to_pylist() == [b"0", None, b"2"]


def test_many_headers_of_a_record_are_read() -> None:
    """The first of a name counts, however many there are; half a million cost what as many bytes do."""
    sized = (varint(len(part)) + part for i in range(500_000) for part in (b"h%d" % (i % 400_000), b"%d" % i))
    fields = b"\0\0\0" + varint(-1) + varint(-1) + varint(500_000) + b"".join(sized)
    body = varint(len(fields)) + fields + written(Record(1, b"k", b"v", (("h7", None),)), 0)
    told = read_headers(
        records(body, BatchSections.of([BatchSection(0, len(body), 2, 0)]), 0, 9), ["h7", "h399999", "h400000"]
    )
    assert [column.to_pylist() for column in told.columns] == [[b"7", None], [b"399999", None], [None, None]]
    assert not told.broken.any()


def test_a_header_that_reaches_behind_its_record_is_not_read() -> None:
    """A header's size that reaches into the next record, or out of all bytes, gives none of them away."""
    for size in (40, 2**20, 2**31 - 1, 2**62, 2**63 - 1):
        fields = b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + varint(1) + b"h" + varint(size)
        body = varint(len(fields)) + fields + written(Record(1, b"k", b"secret" * 9), 0)
        told = read_headers(records(body, BatchSections.of([BatchSection(0, len(body), 2, 0)]), 0, 9), ["h"])
        assert told.broken.tolist() == [True, False]
        assert told.columns[0].to_pylist() == [None, None]


def test_a_marker_that_is_none_is_an_error() -> None:
    """A control batch whose record has no end, or no type, is not read beyond."""
    for body in (b"\xff" * 8, b"\0\0\0\0\0\0"):
        with pytest.raises(UnreadableRecords, match="marker"):
            read(Made(framed(body, 1, 0x30), (), []), 0, 9)


def test_a_block_that_lies_about_its_size_is_not_made_room_for() -> None:
    """Snappy's own size of a block is believed only as far as such a block can hold it."""
    for size in (varint(2**33), b"\xff" * 40):
        with pytest.raises(UnreadableRecords, match="block"):
            read(Made(framed(size + b"\0" * 20, 1, SNAPPY), (), []), 0, 9)


def test_a_batch_that_ends_before_it_begins_is_an_error() -> None:
    """Counts below zero are nobody's."""
    with pytest.raises(UnreadableRecords, match="says it has -1"):
        read(Made(framed(b"", -1, 0), (), []), 0, 9)


def framed(body: bytes, count: int, attributes: int) -> bytes:
    """A batch at offset 0 whose checksum is right, whatever else."""
    after = struct.pack(">hiqqqhii", attributes, 0, 0, 0, 1, 0, 0, count) + body
    rest = struct.pack(">ibI", 0, 2, google_crc32c.value(after)) + after
    return struct.pack(">qi", 0, len(rest)) + rest
