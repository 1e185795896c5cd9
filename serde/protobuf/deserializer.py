"""Protobuf bytes behind a registry's frame -> blocks, one per schema id and message of it."""

from __future__ import annotations

from functools import partial

from attrs import define

from serde.byte_windows import ByteWindows
from serde.frames import FramedGroup, GlueFrame
from serde.messages import Rows
from serde.pieces import DatumReader, read_pieces
from serde.protobuf.column_reader import read_messages
from serde.protobuf.message_indexes import Place, split_messages, split_numbered_messages
from serde.protobuf.schemas.writer_schema import parse_writer_schema
from serde.protobuf.single_message import read_message
from serde.registered import FramedDecoding, RegisteredDeserializer


@define(eq=False)
class ProtobufDeserializer(RegisteredDeserializer):
    """Decodes framed Protobuf."""

    form = "Protobuf"

    def _decode_group(self, work: FramedDecoding, group: FramedGroup) -> None:
        if not len(group.rows):
            return
        split = split_numbered_messages if isinstance(self.frame, GlueFrame) else split_messages
        parts, nameless = split(group.payload)
        for row in group.rows[nameless].tolist():
            work.reject(row, "the indexes after its schema id name no message")
        for place, at, payload in parts:
            self._decode_messages(work, group, place, group.rows[at], payload)

    def _decode_messages(
        self, work: FramedDecoding, group: FramedGroup, place: Place, rows: Rows, payload: ByteWindows
    ) -> None:
        writer = work.find_schema(
            group,
            rows,
            lambda: parse_writer_schema(self.fetch(group.number), place, self.wanted, work.alone),
            lambda found: found.schema,
        )
        if writer is None:
            return
        reader = DatumReader(
            writer.codec.wire, partial(read_messages, writer.codec), partial(read_message, writer.codec)
        )
        where, wire, faults = read_pieces(payload, reader)
        for index, reason in faults.items():
            work.reject(int(rows[index]), f"Protobuf message of schema id {group.name} {reason}")
        work.add_block(rows[where], wire, writer.schema)
