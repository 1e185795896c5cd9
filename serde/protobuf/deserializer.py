"""Protobuf bytes behind a registry's frame -> blocks, one per schema id and message of it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from attrs import define, field

from serde.arrays import Mask
from serde.byte_windows import ByteWindows, byte_windows
from serde.connect.logical_columns import to_logical_rows
from serde.connect.primitive_keys import key_field_name, may_be_primitive
from serde.connect.text_columns import with_text_columns
from serde.faults import RecordError, Stage
from serde.frames import ConfluentFrame, Frame, FramedGroup
from serde.messages import DecodedMessages, MessageBlock, Rows
from serde.pieces import DatumReader, read_pieces
from serde.protobuf.column_reader import read_messages
from serde.protobuf.message_indexes import Indexes, split_messages
from serde.protobuf.single_message import read_message
from serde.protobuf.writer_schema import MessageSchema, parse_writer_schema
from serde.wire_format import FetchSchema, UnknownSchema


@define(eq=False)
class ProtobufDeserializer:
    """Decodes framed Protobuf; `fetch` gives writer schemas by id and does its own caching."""

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
        alone = key_field_name(expected) if stage == "KEY_CONVERTER" and may_be_primitive(expected) else None
        texts, nulls = byte_windows(data)
        work = _Decoding(self, texts, stage, alone, self.words | text_columns)
        work.run(nulls)
        faults = tuple(sorted(work.faults, key=lambda fault: fault.row))
        return DecodedMessages(tuple(block for block in work.blocks if len(block.rows)), np.flatnonzero(nulls), faults)


@define(eq=False)
class _Decoding:
    """One call of decode."""

    converter: ProtobufDeserializer
    texts: ByteWindows
    stage: Stage
    alone: str | None
    words: frozenset[str]
    blocks: list[MessageBlock] = field(factory=list)
    faults: list[RecordError] = field(factory=list)

    def run(self, nulls: Mask) -> None:
        rows = np.flatnonzero(~nulls)
        for group in self.converter.frame.split(self.texts, rows, "Protobuf", self._add_fault):
            parts, nameless = split_messages(group.payload)
            for row in group.rows[nameless].tolist():
                self._add_fault(row, "the indexes behind its schema id name no message")
            for indexes, at, payload in parts:
                self._decode_block(group, indexes, group.rows[at], payload)

    def _decode_block(self, group: FramedGroup, indexes: Indexes, rows: Rows, payload: ByteWindows) -> None:
        writer = self._writer_schema(group, indexes, rows)
        if writer is None:
            return
        reader = DatumReader(
            writer.codec.wire, partial(read_messages, writer.codec), partial(read_message, writer.codec)
        )
        where, wire, faults = read_pieces(payload, reader)
        for index, reason in faults.items():
            self._add_fault(int(rows[index]), f"Protobuf message of schema id {group.name} {reason}")
        told = with_text_columns(writer.schema, self.words, self.converter.numbers)
        rows, fields, unfit = to_logical_rows(rows[where], wire, told.node)
        for row, reason in unfit:
            self._add_fault(row, reason)
        schema = writer.schema
        self.blocks.append(MessageBlock(rows, fields, schema.id, schema.name, schema.optional, schema.documents))

    def _writer_schema(self, group: FramedGroup, indexes: Indexes, rows: Rows) -> MessageSchema | None:
        """The writer schema of these rows; None when they are all faults."""
        try:
            texts = self.converter.fetch(group.number)
            writer = parse_writer_schema(texts, indexes, self.converter.wanted, self.alone)
            reason = writer.schema.fault
        except UnknownSchema as unknown:
            writer, reason = None, str(unknown)
        if reason is None:
            return writer
        for row in rows.tolist():
            self._add_fault(row, f"schema id {group.name}: {reason}")
        return None

    def _add_fault(self, row: int, reason: str) -> None:
        self.faults.append(RecordError(row, self.stage, reason))
