"""Fetched bytes -> record batches: headers read, sections unpacked, aborted transactions left out (pure).

Source: Kafka's protocol documentation, "Record Batch" (format version 2), "Control Batches"; KIP-98 for transactions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import attrs
import google_crc32c
import pyarrow as pa

from connector.kafka.protocol.fetch import AbortedTransaction

HEADER_BYTES = 61
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
_PREFIX_BYTES = 12
"""Bytes in front of what the length counts."""

_CHECKSUM_START = 21
"""Where in a batch that begins which its checksum covers."""

_MESSAGE_FORMAT = 2
_CODEC_BITS, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x10, 0x20
_GZIP, _SNAPPY = 1, 2
_ARROW_CODECS = {3: "lz4", 4: "zstd"}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_MAX_RATIO, _SNAPPY_LENGTH_BITS = 64, 35
"""Snappy cannot pack better: its copies of at most 64 bytes take two. Its length has 32 bits."""

MAX_BATCH_BYTES = 2**31 - 64
"""Most that a batch may unpack to: what a reader of records can place."""

_ABORT_MARKER = 0
_MARKER_FIELDS = 5
_MARKER_TYPE = struct.Struct(">hh")


class UnreadableRecords(ValueError):
    """The bytes are not what the protocol says."""


@attrs.frozen
class RecordBatch:
    """One batch: its records stand in the fetched bytes from `start` to `end`, packed as `attributes` say.

    `epoch` is that of the leader that took it, -1 if unknown.
    """

    base: int
    last: int
    count: int
    attributes: int
    producer: int
    start: int
    end: int
    epoch: int = -1

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed."""
        return bool(self.attributes & _CODEC_BITS)


def parse_batches(data: memoryview) -> Iterator[RecordBatch]:
    """Return the whole batches of fetched bytes in order; the last may have been cut off by the fetch's size.

    Raises:
        Unreadable: a batch of an older format, or bytes that are none.
    """
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, length = _LENGTH.unpack_from(data, at)
        end = at + _PREFIX_BYTES + length
        if data[at + 16] != _MESSAGE_FORMAT:
            raise UnreadableRecords(f"message format {data[at + 16]}; only format 2 (Kafka 0.11 and later) is read")
        if length < HEADER_BYTES - _PREFIX_BYTES:
            raise UnreadableRecords(f"a record batch of {length} bytes")
        if end > len(data):
            return
        _, _, epoch, _, crc, attributes, last, _, _, producer, _, _, count = _HEADER.unpack_from(data, at)
        if last < 0 or count < 0:
            raise UnreadableRecords(
                f"the record batch at offset {base} says it has {count} records up to {last} behind it"
            )
        if google_crc32c.value(bytes(data[at + _CHECKSUM_START : end])) != crc:
            raise UnreadableRecords(f"the record batch at offset {base} is not as it was written (CRC-32C)")
        yield RecordBatch(base, base + last, count, attributes, producer, at + HEADER_BYTES, end, epoch)
        at = end


def drop_aborted(
    found: Sequence[RecordBatch], aborted: Sequence[AbortedTransaction], data: memoryview
) -> list[RecordBatch]:
    """Leave out control batches, and those of aborted transactions.

    Args:
        found: batches in order of offsets.
        aborted: the transactions that the broker says were given up in this fetch.
        data: the fetched bytes.
    """
    waiting = sorted(aborted, key=lambda one: one.first, reverse=True)
    given_up: set[int] = set()
    kept = []
    for batch in found:
        while waiting and waiting[-1].first <= batch.last:
            given_up.add(waiting.pop().producer)
        if batch.attributes & _CONTROL_BIT:
            if _is_abort_marker(batch, data):
                given_up.discard(batch.producer)
        elif not (batch.attributes & _TRANSACTIONAL_BIT and batch.producer in given_up):
            kept.append(batch)
    return kept


def _is_abort_marker(batch: RecordBatch, data: memoryview) -> bool:
    """Read the marker's type: one record whose key is two numbers, version and type; compaction may have taken it."""
    if not batch.count:
        return False
    # length, attributes, time and offset (one byte each: they are 0 but for the length), then the key's length.
    section, at = data[batch.start : batch.end], 0
    try:
        for _ in range(_MARKER_FIELDS):
            while section[at] & 0x80:
                at += 1
            at += 1
        return bool(_MARKER_TYPE.unpack_from(section, at)[1] == _ABORT_MARKER)
    except (IndexError, struct.error) as error:
        raise UnreadableRecords(f"the marker of a transaction at offset {batch.base} is none") from error


def decompress(batch: RecordBatch, data: memoryview) -> bytes | memoryview:
    """Return the bytes of a batch's records.

    Raises:
        Unreadable: an unknown codec, or bytes that it cannot read.
    """
    section = data[batch.start : batch.end]
    codec = batch.attributes & _CODEC_BITS
    try:
        if codec == 0:
            return section
        if codec == _GZIP:
            return _check_size(zlib.decompressobj(wbits=31).decompress(section, MAX_BATCH_BYTES + 1))
        if codec == _SNAPPY:
            return _decompress_snappy(section)
        if codec in _ARROW_CODECS:
            return _check_size(
                pa.CompressedInputStream(pa.py_buffer(section), _ARROW_CODECS[codec]).read(MAX_BATCH_BYTES + 1)
            )
    except (zlib.error, OSError, IndexError, MemoryError, pa.ArrowException) as error:
        raise UnreadableRecords(f"a record batch that cannot be unpacked: {error}") from error
    raise UnreadableRecords(f"compression {codec} of a record batch is not known")


def _check_size(data: bytes) -> bytes:
    if len(data) > MAX_BATCH_BYTES:
        raise UnreadableRecords(f"a record batch that unpacks to more than {MAX_BATCH_BYTES} bytes")
    return data


def _decompress_snappy(section: memoryview) -> bytes:
    """Java's clients write blocks with lengths behind a header of their own; librdkafka one bare block."""
    if bytes(section[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(section)
    parts, at = [], _XERIAL_HEADER_BYTES
    while at < len(section):
        size = int.from_bytes(section[at : at + 4], "big")
        parts.append(_decompress_snappy_block(section[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview) -> bytes:
    size = shift = at = 0
    while True:
        byte = block[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            break
        if shift == _SNAPPY_LENGTH_BITS:
            raise UnreadableRecords("a packed block whose size is no number")
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise UnreadableRecords(f"a packed block of {len(block)} bytes that says it holds {size}")
    return pa.decompress(pa.py_buffer(block), size, "snappy", asbytes=True)
