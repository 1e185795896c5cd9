"""Fetched bytes -> record batches: headers read, sections unpacked, aborted transactions left out (pure).

Source: Kafka's protocol documentation, "Record Batch" (format version 2), "Control Batches"; KIP-98 for transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import attrs
import google_crc32c
import numpy as np

from connector.kafka.consumer.records.decompression import MAX_BATCH_BYTES, decompress_section
from connector.kafka.consumer.records.unreadable_records import UnreadableRecords
from connector.kafka.protocol.fetch import AbortedTransactions
from serde.arrays import Ints, Mask

HEADER_BYTES = 61
_HEADER = np.dtype(
    {
        "names": ["base", "length", "epoch", "crc", "attributes", "last", "producer", "count"],
        "formats": [">i8", ">i4", ">i4", ">u4", ">i2", ">i4", ">i8", ">i4"],
        "offsets": [0, 8, 12, 17, 21, 23, 43, 57],
        "itemsize": HEADER_BYTES,
    }
)
_LENGTH, _BASE = struct.Struct(">iib"), struct.Struct(">q")
_PREFIX_BYTES, _LENGTH_START = 12, 8
"""Bytes in front of what the length counts, and in front of the length, the leader epoch and the format."""

_CHECKSUM_START = 21
"""Where in a batch that begins which its checksum covers."""

_MESSAGE_FORMAT, _OLD_FORMATS = 2, (0, 1)
END_OF_OFFSETS = 2**63 - 1
_CODEC_BITS, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x10, 0x20
_ABORT_MARKER = 0
_BEGUN_AT_ONCE = 1 << 16
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


_COLUMNS = ("base", "last", "count", "attributes", "producer", "start", "end", "epoch")


@attrs.frozen(eq=False)
class RecordBatches:
    """Record batches as columns, fields as `RecordBatch` has them; `faults` by place.

    `is_open` tells that nobody knows where the last one ends: it has a fault, and nothing was fetched behind it.
    """

    base: Ints
    last: Ints
    count: Ints
    attributes: Ints
    producer: Ints
    start: Ints
    end: Ints
    epoch: Ints
    faults: Mapping[int, str] = attrs.field(factory=dict)
    is_open: bool = False

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.base)

    def __iter__(self) -> Iterator[RecordBatch]:
        """Return them one by one."""
        columns = [getattr(self, name).tolist() for name in _COLUMNS]
        for place, fields in enumerate(zip(*columns, strict=True)):
            yield RecordBatch(**dict(zip(_COLUMNS, fields, strict=True)), fault=self.faults.get(place, ""))

    def filter(self, keep: Mask) -> RecordBatches:
        """Return those under a mask."""
        if keep.all():
            return self
        places = (np.cumsum(keep) - 1).tolist()
        faults = {places[place]: fault for place, fault in self.faults.items() if keep[place]}
        return RecordBatches(**{name: getattr(self, name)[keep] for name in _COLUMNS}, faults=faults)

    def has(self, bits: int) -> bool:
        """Tell whether any has one of these attributes."""
        return bool((self.attributes & bits).any())

    @property
    def is_plain(self) -> bool:
        """Whether all can be read as they are: none is compressed, or has a fault."""
        return not self.faults and not self.has(_CODEC_BITS)


def parse_batches(data: memoryview, most: int | None = None) -> RecordBatches:
    """Return the whole batches of fetched bytes in order; the last may have been cut off by the fetch's size.

    One that is not as it was written has a fault; where the next begins is told all the same. `most`: of so many only.

    Raises:
        UnreadableRecords: a batch of an older format, bytes that are none, or batches out of order.
    """
    found, behind = _find_batches(data, most)
    starts = np.array(found, np.int64)
    view = np.frombuffer(data, np.uint8)
    lines = np.lib.stride_tricks.as_strided(
        view, (max(len(data) - HEADER_BYTES + 1, 0), HEADER_BYTES), (1, 1), writeable=False
    )
    header = lines[starts].reshape(-1).view(_HEADER)
    fields = {name: header[name].astype(np.int64) for name in _HEADER.names or ()}
    last, count, ends = fields["last"], fields["count"], starts + _PREFIX_BYTES + fields["length"]
    faults = {
        place: f"the record batch says it has {count[place]} records up to {last[place]} after its first"
        for place in np.flatnonzero((last < 0) | (count < 0)).tolist()
    }
    checksum = google_crc32c.value
    spans = zip((starts + _CHECKSUM_START).tolist(), ends.tolist(), fields["crc"].tolist(), strict=True)
    for place, (start, end, crc) in enumerate(spans):
        if checksum(view[start:end]) != crc:
            faults[place] = "the record batch is not as it was written (CRC-32C)"
    base = fields["base"]
    told = (
        base,
        _find_last(base, last, faults, behind),
        np.maximum(count, 0),
        fields["attributes"],
        fields["producer"],
    )
    is_open = behind is None and len(base) - 1 in faults
    return RecordBatches(*told, starts + HEADER_BYTES, ends, fields["epoch"], faults, is_open)


def _find_last(base: Ints, span: Ints, faults: Mapping[int, str], behind: int | None) -> Ints:
    """Return the last offset of each batch; one with a fault ends in front of the next, whatever it says.

    No checksum covers where a batch begins: records of batches that are out of order would come twice, or never.

    Args:
        base: where each begins.
        span: how many offsets each says that it has behind that.
        faults: by place.
        behind: where the batch behind the last one begins, if that is known.
    """
    last: Ints = base + np.maximum(span, 0)
    following = [*base[1:].tolist(), END_OF_OFFSETS if behind is None else behind]
    for place in faults:
        last[place] = max(int(base[place]), min(int(last[place]), following[place] - 1))
    wrong = last < base
    wrong[1:] |= base[1:] <= last[:-1]
    if wrong.any():
        raise UnreadableRecords(f"the record batch at offset {base[wrong][0]} is out of order")
    return last


def check_leaps(found: RecordBatches, first: int, high_watermark: int) -> None:
    """Refuse batches that leave offsets out as no log does: what follows would be passed over, or they would be.

    Compaction leaves offsets out within the log only, so none begins behind its end. What was written since the end was
    told follows without a gap. A broker may begin in front of what was asked for, and then goes on to that.

    Args:
        found: batches of a fetch.
        first: the offset that was asked for.
        high_watermark: where the log ended, -1 if unknown.
    """
    behind = int((found.last < first).sum())
    if 0 < behind < len(found) and found.base[behind] > first:
        raise UnreadableRecords(f"the record batch at offset {found.base[behind - 1]} is out of order: not at {first}")
    leaps = found.base > np.append(first, found.last[:-1] + 1)[: len(found)]
    wrong = found.base[leaps & (found.base > high_watermark)]
    if high_watermark >= 0 and len(wrong):
        raise UnreadableRecords(f"the record batch at offset {wrong[0]} is after the log's end, {high_watermark}")


def bound_last(found: RecordBatches, high_watermark: int) -> RecordBatches:
    """Let a last batch whose end nobody knows end where the log does: its fault is its own, and no later record's."""
    if not found.is_open or high_watermark < 0:
        return found
    last = found.last.copy()
    last[-1] = max(int(found.base[-1]), min(int(last[-1]), high_watermark - 1))
    return attrs.evolve(found, last=last, is_open=False)


def _find_batches(data: memoryview, most: int | None) -> tuple[list[int], int | None]:
    """Find where each whole batch begins, and the offset at which the one behind them does, if that came too."""
    starts: list[int] = []
    at, size, unpack = 0, len(data), _LENGTH.unpack_from
    while at + HEADER_BYTES <= size and len(starts) != most:
        length, _, message_format = unpack(data, at + _LENGTH_START)
        if message_format != _MESSAGE_FORMAT:
            known = "the native reader reads format 2 only (Kafka 0.11 and later)"
            if message_format in _OLD_FORMATS:
                known = f"{known}, librdkafka this one too: set consumer.reader=librdkafka"
            raise UnreadableRecords(f"message format {message_format}; {known}")
        if length < HEADER_BYTES - _PREFIX_BYTES:
            raise UnreadableRecords(f"a record batch of {length} bytes")
        if at + _PREFIX_BYTES + length > size:
            break
        starts.append(at)
        at += _PREFIX_BYTES + length
    return starts, _BASE.unpack_from(data, at)[0] if at + _BASE.size <= size else None


def drop_aborted(found: RecordBatches, aborted: AbortedTransactions, data: memoryview) -> RecordBatches:
    """Leave out control batches, and those of aborted transactions.

    Args:
        found: batches in order of offsets.
        aborted: the transactions that the broker says were given up in this fetch.
        data: the fetched bytes.
    """
    if not found.has(_CONTROL_BIT | (_TRANSACTIONAL_BIT if len(aborted) else 0)):
        return found
    transactions, faults = _Transactions(aborted.of_producers(found.producer)), dict(found.faults)
    keep = np.ones(len(found), np.bool_)
    for place, batch in enumerate(found):
        if batch.fault:
            transactions.pass_unreadable()
            continue
        keep[place] = transactions.take(batch, data)
        if keep[place] and transactions.is_unknown(batch):
            faults[place] = "whether the transaction was committed is in a batch before it that cannot be read"
    return attrs.evolve(found, faults=faults).filter(keep)


class _Transactions:
    """Whose transactions are given up, as one goes from batch to batch."""

    def __init__(self, aborted: AbortedTransactions) -> None:
        """Take those that concern the batches, in order."""
        self._aborted, self._begun = aborted, 0
        self._given_up: set[int] = set()
        self._unknown: set[int] = set()

    def pass_unreadable(self) -> None:
        """Go behind a batch that may be the marker with which any of them ends."""
        self._unknown |= self._given_up

    def take(self, batch: RecordBatch, data: memoryview) -> bool:
        """Go on to a batch; tell whether its records may count: markers and what was given up do not."""
        behind = int(np.searchsorted(self._aborted.first, batch.last, side="right"))
        for start in range(self._begun, behind, _BEGUN_AT_ONCE):
            begun = set(self._aborted.producer[start : min(start + _BEGUN_AT_ONCE, behind)].tolist())
            self._given_up |= begun
            self._unknown -= begun
        self._begun = max(self._begun, behind)
        if batch.attributes & _CONTROL_BIT:
            if _is_abort_marker(batch, data) or batch.producer in self._unknown:
                self._given_up.discard(batch.producer)
                self._unknown.discard(batch.producer)
            return False
        return not batch.attributes & _TRANSACTIONAL_BIT or batch.producer not in self._given_up - self._unknown

    def is_unknown(self, batch: RecordBatch) -> bool:
        """Tell whether nobody can say of a batch that may count if it does."""
        return bool(batch.attributes & _TRANSACTIONAL_BIT) and batch.producer in self._unknown


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
