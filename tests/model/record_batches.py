"""records -> record batches, one field after the other: what a broker would send, for the tests of our reader."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence

import google_crc32c
import pyarrow as pa
from attrs import frozen

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
XERIAL = -2
"""Snappy as Java's clients frame it."""


@frozen
class Record:
    """One record; `offset` is absolute."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def varint(number: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def batch(
    records: Sequence[Record],
    base: int,
    last: int,
    codec: int = NONE,
    producer: int = -1,
    transactional: bool = False,
    marker: int | None = None,
    emptied: bool = False,
    epoch: int = 0,
) -> bytes:
    """One batch whose offsets span `base` to `last`; `marker` makes it a control batch (0 abort, 1 commit).

    `emptied`: compaction took the records and left the batch.
    """
    if emptied:
        body, count = b"", 0
    elif marker is not None:
        body = written(Record(base, struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0)), base)
        count = 1
    else:
        body, count = b"".join(written(record, base) for record in records), len(records)
    attributes = (SNAPPY if codec == XERIAL else codec) | (0x10 if transactional else 0) | (0x20 * (marker is not None))
    packed = _packed(body, codec)
    time_ms = 1_700_000_000_000
    after = struct.pack(">hiqqqhii", attributes, last - base, time_ms, time_ms, producer, 0, 0, count)
    after += packed
    rest = struct.pack(">ibI", epoch, 2, google_crc32c.value(after)) + after
    return struct.pack(">qi", base, len(rest)) + rest


def messages(records: Sequence[Record], message_format: int, codec: int = NONE) -> bytes:
    """Records as brokers before Kafka 0.11 keep them (formats 0 and 1); packed ones are in one of the last's offset."""
    plain = b"".join(_message(one.offset, one.key, one.value, message_format, NONE) for one in records)
    if codec == NONE:
        return plain
    # Within a packed message of format 1 offsets are counted from its first.
    inner = records if message_format == 0 else [Record(i, one.key, one.value) for i, one in enumerate(records)]
    packed = b"".join(_message(one.offset, one.key, one.value, message_format, NONE) for one in inner)
    return _message(records[-1].offset, None, _packed(packed, codec), message_format, codec)


def _message(offset: int, key: bytes | None, value: bytes | None, message_format: int, codec: int) -> bytes:
    body = struct.pack(">bb", message_format, codec)
    body += struct.pack(">q", 1_500_000_000_000) if message_format else b""
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def written(record: Record, base: int) -> bytes:
    """One record's bytes, as a batch that begins at `base` holds them."""
    fields = b"\0" + varint(-(record.offset % 7)) + varint(record.offset - base)
    for part in (record.key, record.value):
        fields += varint(-1) if part is None else varint(len(part)) + part
    fields += varint(len(record.headers))
    for name, value in record.headers:
        fields += varint(len(name.encode())) + name.encode()
        fields += varint(-1) if value is None else varint(len(value)) + value
    return varint(len(fields)) + fields


@frozen
class Read:
    """A record as it was read; `headers` is None where they do not end where the record does."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] | None


def read_records(body: bytes, count: int, base: int) -> list[Read]:
    """The records of one unpacked batch, byte after byte as the protocol says; ValueError for what is none."""
    found: list[Read] = []
    at = 0
    for _ in range(count):
        size, at = _number(body, at, 5)
        if size < 0 or at + size > len(body):
            raise ValueError("size")
        found.append(_one(body[at : at + size], base))
        if not found[-1].offset > (found[-2].offset if len(found) > 1 else base - 1):
            raise ValueError("order")
        at += size
    if at != len(body) or count < 0:
        raise ValueError("count")
    return found


def _one(body: bytes, base: int) -> Read:
    _, at = _number(body, 1, 10)
    delta, at = _number(body, at, 10)
    if not 0 <= delta < 2**31:
        raise ValueError("delta")
    key, at = _field(body, at)
    value, at = _field(body, at)
    return Read(base + delta, key, value, _headers(body, at))


def _headers(body: bytes, at: int) -> tuple[tuple[bytes, bytes | None], ...] | None:
    found = []
    try:
        count, at = _number(body, at, 10)
        if not 0 <= count <= (len(body) - at) // 2:
            return None
        for _ in range(count):
            name, at = _field(body, at)
            value, at = _field(body, at)
            if name is None:
                return None
            found.append((name, value))
    except ValueError:
        return None
    return tuple(found) if at == len(body) else None


def _field(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _number(body, at, 10)
    if size == -1:
        return None, at
    if size < 0 or at + size > len(body):
        raise ValueError("field")
    return body[at : at + size], at + size


def _number(body: bytes, at: int, longest: int) -> tuple[int, int]:
    raw = 0
    for place in range(longest):
        if at + place >= len(body):
            raise ValueError("ends")
        raw |= (body[at + place] & 0x7F) << 7 * place
        if body[at + place] < 0x80:
            raw &= 2**64 - 1
            return raw >> 1 ^ -(raw & 1), at + place + 1
    raise ValueError("varint")


def _packed(body: bytes, codec: int) -> bytes:
    if codec == GZIP:
        return gzip.compress(body, mtime=0)
    if codec == SNAPPY:
        return bytes(pa.compress(body, "snappy", asbytes=True))
    if codec == XERIAL:
        halves = [body[: len(body) // 2], body[len(body) // 2 :]]
        blocks = [pa.compress(half, "snappy", asbytes=True) for half in halves]
        framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed
    if codec in (LZ4, ZSTD):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "lz4" if codec == LZ4 else "zstd") as stream:
            stream.write(body)
        return bytes(sink.getvalue().to_pybytes())
    return body
