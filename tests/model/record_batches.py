"""records -> record batches, one field after the other: what a broker would send, for the tests of our reader."""

from __future__ import annotations

import gzip
import struct
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
) -> bytes:
    """One batch whose offsets span `base` to `last`; `marker` makes it a control batch (0 abort, 1 commit).

    `emptied`: compaction took the records and left the batch.
    """
    if emptied:
        body, count = b"", 0
    elif marker is not None:
        body = _record(Record(base, struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0)), base)
        count = 1
    else:
        body, count = b"".join(_record(record, base) for record in records), len(records)
    attributes = (SNAPPY if codec == XERIAL else codec) | (0x10 if transactional else 0) | (0x20 * (marker is not None))
    packed = _packed(body, codec)
    time_ms = 1_700_000_000_000
    after = struct.pack(">hiqqqhii", attributes, last - base, time_ms, time_ms, producer, 0, 0, count)
    after += packed
    rest = struct.pack(">ibI", 0, 2, google_crc32c.value(after)) + after
    return struct.pack(">qi", base, len(rest)) + rest


def _record(record: Record, base: int) -> bytes:
    fields = b"\0" + varint(-(record.offset % 7)) + varint(record.offset - base)
    for part in (record.key, record.value):
        fields += varint(-1) if part is None else varint(len(part)) + part
    fields += varint(len(record.headers))
    for name, value in record.headers:
        fields += varint(len(name.encode())) + name.encode()
        fields += varint(-1) if value is None else varint(len(value)) + value
    return varint(len(fields)) + fields


def _packed(body: bytes, codec: int) -> bytes:
    if codec == GZIP:
        return gzip.compress(body)
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
