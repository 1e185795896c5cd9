"""Fetched bytes -> record batches: headers read, sections unpacked, aborted transactions left out (pure).

Source: Kafka's protocol documentation, "Record Batch" (format version 2), "Control Batches"; KIP-98 for transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import attrs
import google_crc32c

from connector.kafka.consumer.decompression import MAX_BATCH_BYTES, decompress_section
from connector.kafka.consumer.unreadable_records import UnreadableRecords
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
_ABORT_MARKER = 0
_MARKER_FIELDS = 5
_MARKER_TYPE = struct.Struct(">hh")


@attrs.frozen
class RecordBatch:
    """One batch: its records stand in the fetched bytes from `start` to `end`, packed as `attributes` say.

    `epoch` is that of the leader that took it, -1 if unknown. `fault` says why its records cannot be read, if it is
    known before they are.
    """

    base: int
    last: int
    count: int
    attributes: int
    producer: int
    start: int
    end: int
    epoch: int = -1
    fault: str = ""

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed."""
        return bool(self.attributes & _CODEC_BITS)


def parse_batches(data: memoryview) -> Iterator[RecordBatch]:
    """Return the whole batches of fetched bytes in order; the last may have been cut off by the fetch's size.

    One that is not as it was written has a fault; where the next begins is told all the same.

    Raises:
        UnreadableRecords: a batch of an older format, or bytes that are none.
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
        fault = ""
        if google_crc32c.value(bytes(data[at + _CHECKSUM_START : end])) != crc:
            fault = "the record batch is not as it was written (CRC-32C)"
        elif last < 0 or count < 0:
            fault = f"the record batch says it has {count} records up to {last} behind its first"
        place = (base, base + max(last, 0), max(count, 0))
        yield RecordBatch(*place, attributes, producer, at + HEADER_BYTES, end, epoch, fault)
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


def decompress(batch: RecordBatch, data: memoryview, limit: int = MAX_BATCH_BYTES) -> bytes | memoryview:
    """Return the bytes of a batch's records, up to `limit` of them.

    Raises:
        UnreadableRecords: the batch is not as it was written, or cannot be unpacked.
    """
    if batch.fault:
        raise UnreadableRecords(batch.fault)
    return decompress_section(data[batch.start : batch.end], batch.attributes & _CODEC_BITS, limit)
