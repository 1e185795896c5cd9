"""Avro bytes behind a registry's frame -> blocks, one per schema id."""

from __future__ import annotations

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
from serde.frames import ConfluentFrame, Frame, FramedGroup
from serde.messages import DecodedMessages, MessageBlock, Rows
from serde.wire_format import FetchSchema, UnknownSchema


@define(eq=False)
class AvroDeserializer:
    """Decodes framed Avro; `fetch` gives writer schemas by id and does its own caching."""

    fetch: FetchSchema
    wanted: frozenset[str] | None = None
    words: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    frame: Frame = ConfluentFrame()

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
        for group in self.converter.frame.split(self.texts, rows, "Avro", self._add_fault):
            self._decode_block(group)

    def _decode_block(self, group: FramedGroup) -> None:
        rows = group.rows
        writer = self._writer_schema(group)
        if writer is None:
            return
        where, wire, faults = read_datums(group.payload, writer.codec)
        for index, reason in faults.items():
            self._add_fault(int(rows[index]), f"Avro datum of schema id {group.name} {reason}")
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

    def _writer_schema(self, group: FramedGroup) -> WriterSchema | None:
        """The writer schema of these rows; None when they are all faults."""
        try:
            writer = parse_writer_schema(self.converter.fetch(group.number), self.converter.wanted, self.alone)
            reason = writer.schema.fault
        except UnknownSchema as unknown:
            writer, reason = None, str(unknown)
        if reason is None:
            return writer
        for row in group.rows.tolist():
            self._add_fault(row, f"schema id {group.name}: {reason}")
        return None

    def _add_fault(self, row: int, reason: str) -> None:
        self.faults.append(RecordError(row, self.stage, reason))
