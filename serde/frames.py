"""framed messages -> payloads by schema: what the serializers of a schema registry put in front of a datum.

Sources: Confluent "Wire format" (0, four bytes of schema id) and its `SchemaId` of Platform 8 (1, sixteen bytes of
GUID); Apicurio's default id handler (eight bytes); the AWS Glue Schema Registry library's encoder (3, compression,
sixteen bytes of schema version).
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from serde.arrays import Ints, Mask
from serde.byte_windows import ByteWindows
from serde.messages import Rows

MAX_UNPACKED_BYTES = 1 << 30
"""More than this is no message of Kafka: a compressed one that claims to be is a bomb."""

_WORDS = {5: "five", 9: "nine", 17: "seventeen", 18: "eighteen"}
_ID, _GUID = 0, 1
_GLUE_VERSION, _GLUE_PLAIN, _GLUE_ZLIB = 3, 0, 5
_GLUE_HEAD, _UUID_BYTES = 2, 16
MAX_NUMBER = 2**63 - 1
"""What is greater is a uuid."""


@frozen(eq=False)
class FramedGroup:
    """Messages of one schema: its id, their rows in the input (ascending), and what is behind the frames."""

    number: int
    rows: Rows
    payload: ByteWindows

    @property
    def name(self) -> str:
        """The id as its registry writes it."""
        return format_id(self.number)


def format_id(number: int) -> str:
    """Write an id as its registry does: a number, or a uuid."""
    return str(uuid.UUID(int=number)) if number > MAX_NUMBER else str(number)


AddFault = Callable[[int, str], None]
"""Takes a row of the input and the reason why it is no message."""


class Frame(Protocol):
    """One registry's frame."""

    def split(self, texts: ByteWindows, rows: Rows, name: str, fault: AddFault) -> list[FramedGroup]:
        """Return the groups of the messages at `rows`, by ascending id; what has no such frame goes to `fault`.

        name: of the format that is wanted, for reasons.
        """


@frozen
class ConfluentFrame:
    """0, then a schema id of four bytes; Apicurio's own has eight. With `guids` also 1, then a GUID, as a number."""

    id_bytes: int = 4
    guids: bool = False

    def split(self, texts: ByteWindows, rows: Rows, name: str, fault: AddFault) -> list[FramedGroup]:
        """See `Frame.split`."""
        guids, ids = self._part_guids(texts, rows)
        guids = _keep_framed(texts, guids, (_GUID,), 1 + _UUID_BYTES, name, fault)
        ids = _keep_framed(texts, ids, (_ID,), 1 + self.id_bytes, name, fault)
        return [
            *_cut_frames(texts, _group_numbers(self._read_ids(texts, ids), ids), 1 + self.id_bytes),
            *_cut_frames(texts, _group_uuids(texts, guids, 1), 1 + _UUID_BYTES),
        ]

    def _part_guids(self, texts: ByteWindows, rows: Rows) -> tuple[Rows, Rows]:
        if not self.guids:
            return rows[:0], rows
        picked = texts.pick(rows)
        by_guid = (picked.sizes > 0) & (picked.first() == _GUID)
        return rows[by_guid], rows[~by_guid]

    def _read_ids(self, texts: ByteWindows, rows: Rows) -> Ints:
        starts, ids = texts.starts[rows], np.zeros(len(rows), np.int64)
        for index in range(1, self.id_bytes + 1):
            ids = ids << 8 | texts.view[starts + index]
        return ids


def _cut_frames(texts: ByteWindows, groups: Iterable[tuple[int, Rows]], size: int) -> Iterator[FramedGroup]:
    """Return the groups with what is behind so many bytes of frame."""
    for number, rows in groups:
        yield FramedGroup(number, rows, texts.pick(rows).cut(size, 0))


def _group_numbers(ids: Ints, rows: Rows) -> list[tuple[int, Rows]]:
    if not len(rows):
        return []
    if (ids == ids[0]).all():
        return [(int(ids[0]), rows)]
    return [(number, rows[ids == number]) for number in np.unique(ids).tolist()]


def _keep_framed(texts: ByteWindows, rows: Rows, magic: tuple[int, ...], size: int, name: str, fault: AddFault) -> Rows:
    """The rows with this first byte and at least this many bytes; the others are faults."""
    picked = texts.pick(rows)
    right = (picked.sizes > 0) & np.isin(picked.first(), magic)
    framed: Mask = right & (picked.sizes >= size)
    for index in np.flatnonzero(~framed).tolist():
        if not picked.sizes[index]:
            reason = "empty message"
        elif not right[index]:
            reason = f"no {name} of a schema registry: its first byte is not {magic[0]}"
        else:
            reason = f"shorter than the {_WORDS[size]} bytes before an {name} datum"
        fault(int(rows[index]), reason)
    return rows[framed]


@frozen
class GlueFrame:
    """3, a byte of compression (0 none, 5 zlib), then the schema version's uuid; ids are that uuid as a number.

    Cost: compressed messages are unpacked one by one; the others are not copied.
    """

    max_bytes: int = field(default=MAX_UNPACKED_BYTES, repr=False)

    def split(self, texts: ByteWindows, rows: Rows, name: str, fault: AddFault) -> list[FramedGroup]:
        """See `Frame.split`."""
        head = _GLUE_HEAD + _UUID_BYTES
        rows = _keep_framed(texts, rows, (_GLUE_VERSION,), head, name, fault)
        if not len(rows):
            return []
        packing = texts.view[texts.starts[rows] + 1]
        for index in np.flatnonzero(~np.isin(packing, (_GLUE_PLAIN, _GLUE_ZLIB))).tolist():
            fault(int(rows[index]), "its compression is none that AWS Glue's registry has")
        plain, packed = (
            _cut_frames(texts, _group_uuids(texts, rows[packing == how], _GLUE_HEAD), head)
            for how in (_GLUE_PLAIN, _GLUE_ZLIB)
        )
        return sorted([*plain, *(self._unpack(group, fault) for group in packed)], key=lambda group: group.number)

    def _unpack(self, group: FramedGroup, fault: AddFault) -> FramedGroup:
        kept, plain = [], []
        for index, row in enumerate(group.rows.tolist()):
            try:
                unpacker = zlib.decompressobj()
                data = unpacker.decompress(group.payload.text(index), self.max_bytes)
            except zlib.error:
                fault(row, "its compressed bytes cannot be unpacked")
                continue
            if not unpacker.eof or unpacker.unused_data:
                fault(row, "its compressed bytes do not end where it does")
                continue
            kept.append(row)
            plain.append(data)
        ends = np.cumsum([len(data) for data in plain], dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if plain else ends
        windows = ByteWindows(pa.py_buffer(b"".join(plain)), starts, ends)
        return FramedGroup(group.number, np.array(kept, np.int64), windows)


def _group_uuids(texts: ByteWindows, rows: Rows, at: int) -> list[tuple[int, Rows]]:
    """Group messages by the uuid that begins so many bytes behind their start."""
    if not len(rows):
        return []
    uuids = texts.view[(texts.starts[rows] + at)[:, None] + np.arange(_UUID_BYTES)]
    if (uuids == uuids[0]).all():
        return [(int.from_bytes(uuids[0].tobytes(), "big"), rows)]
    distinct, place = np.unique(uuids, axis=0, return_inverse=True)
    place = place.reshape(-1)
    return [(int.from_bytes(one.tobytes(), "big"), rows[place == at]) for at, one in enumerate(distinct)]
