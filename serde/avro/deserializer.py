"""Avro bytes -> blocks: Confluent's frame (0, four bytes of schema id, datum), one block per schema id.

Apicurio's own frame has eight bytes of id.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from attrs import define

from serde.arrays import Mask, valid_mask
from serde.avro.codec import Optional
from serde.avro.datum_reader import read_datums
from serde.avro.writer_schema import WriterSchema, parse_writer_schema
from serde.byte_windows import ByteWindows, byte_windows
from serde.connect.logical_columns import to_logical_rows
from serde.connect.primitive_keys import key_field_name, may_be_primitive
from serde.connect.text_columns import with_text_columns
from serde.faults import RecordError, Stage
from serde.messages import DecodedMessages, MessageBlock, Rows
from serde.wire_format import FetchSchema, UnknownSchema

_WORDS = {5: "five", 9: "nine"}


@define(eq=False)
class AvroDeserializer:
    """Decodes Confluent Avro; `fetch` gives writer schemas by id and does its own caching."""

    fetch: FetchSchema
    wanted: frozenset[str] | None = None
    words: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    id_bytes: int = 4

    def decode(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None = None,
        text_columns: frozenset[str] = frozenset(),
    ) -> DecodedMessages:
        """See `wire_format.Deserializer.decode`; what `fetch` raises besides UnknownSchema goes through."""
        # Every message has its schema; only a key that is one value takes its name from the table.
        alone = key_field_name(expected) if stage == "KEY_CONVERTER" and may_be_primitive(expected) else None
        texts, nulls = byte_windows(data)
        work = _Decoding(self, texts, stage, alone, self.words | text_columns, [], [np.flatnonzero(nulls)], [])
        work.run(nulls)
        tombstones = np.sort(np.concatenate(work.tombstones)).astype(np.int64)
        faults = tuple(sorted(work.faults, key=lambda fault: fault.row))
        return DecodedMessages(tuple(block for block in work.blocks if len(block.rows)), tombstones, faults)


@define(eq=False)
class _Decoding:
    """One call of decode."""

    converter: AvroDeserializer
    texts: ByteWindows
    stage: Stage
    alone: str | None
    words: frozenset[str]
    blocks: list[MessageBlock]
    tombstones: list[Rows]
    faults: list[RecordError]

    def run(self, nulls: Mask) -> None:
        rows = np.flatnonzero(~nulls)
        framed = self._is_framed(rows)
        for number, same in _group_by_id(self.texts, rows[framed], self.converter.id_bytes):
            self._decode_block(number, same)

    def _is_framed(self, rows: Rows) -> Mask:
        """True where a message has a frame; the others are faults."""
        texts = self.texts.pick(rows)
        magic = (texts.sizes > 0) & (texts.first() == 0)
        framed: Mask = magic & (texts.sizes > self.converter.id_bytes)
        if not framed.all():
            for index in np.flatnonzero(~framed).tolist():
                self._add_fault(
                    int(rows[index]),
                    _describe_frame_error(
                        int(texts.sizes[index]), self.converter.id_bytes + 1, magic=bool(magic[index])
                    ),
                )
        return framed

    def _decode_block(self, number: int, rows: Rows) -> None:
        writer = self._writer_schema(number, rows)
        if writer is None:
            return
        where, wire, faults = read_datums(self.texts.pick(rows).cut(self.converter.id_bytes + 1, 0), writer.codec)
        for index, reason in faults.items():
            self._add_fault(int(rows[index]), f"Avro datum of schema id {number} {reason}")
        rows = rows[where]
        if isinstance(writer.codec, Optional) and wire.null_count:
            there = valid_mask(wire)
            self.tombstones.append(rows[~there])
            rows, wire = rows[there], wire.filter(pa.array(there))
        told = with_text_columns(writer.schema, self.words, self.converter.numbers)
        rows, fields, unfit = to_logical_rows(rows, wire, told.node)
        for row, reason in unfit:
            self._add_fault(row, reason)
        schema = writer.schema
        self.blocks.append(MessageBlock(rows, fields, schema.id, schema.name, schema.optional, schema.documents))

    def _writer_schema(self, number: int, rows: Rows) -> WriterSchema | None:
        """The writer schema of these rows; None when they are all faults."""
        try:
            writer = parse_writer_schema(self.converter.fetch(number), self.converter.wanted, self.alone)
            reason = writer.schema.fault
        except UnknownSchema as unknown:
            writer, reason = None, str(unknown)
        if reason is None:
            return writer
        for row in rows.tolist():
            self._add_fault(row, f"schema id {number}: {reason}")
        return None

    def _add_fault(self, row: int, reason: str) -> None:
        self.faults.append(RecordError(row, self.stage, reason))


def _describe_frame_error(size: int, frame_bytes: int, *, magic: bool) -> str:
    if not size:
        return "empty message"
    if not magic:
        return "no Avro of a schema registry: its first byte is not 0"
    return f"shorter than the {_WORDS[frame_bytes]} bytes in front of an Avro datum"


def _group_by_id(texts: ByteWindows, rows: Rows, id_bytes: int) -> Iterator[tuple[int, Rows]]:
    """Schema ids and the rows that have them, ascending."""
    if not len(rows):
        return
    starts, view = texts.starts[rows], texts.view
    ids = np.zeros(len(rows), np.int64)
    for index in range(1, id_bytes + 1):
        ids = ids << 8 | view[starts + index]
    if (ids == ids[0]).all():
        yield int(ids[0]), rows
        return
    for number in np.unique(ids).tolist():
        yield number, rows[ids == number]
