"""Protobuf bytes behind a registry's frame -> blocks, one per schema id and message of it."""

from __future__ import annotations

from functools import partial

from attrs import define

from serde.byte_windows import ByteWindows
from serde.frames import FramedGroup
from serde.messages import Rows
from serde.pieces import DatumReader, read_pieces
from serde.protobuf.column_reader import read_messages
from serde.protobuf.message_indexes import Indexes, split_messages
from serde.protobuf.single_message import read_message
from serde.protobuf.writer_schema import parse_writer_schema
from serde.registered import FramedDecoding, RegisteredDeserializer


@define(eq=False)
class ProtobufDeserializer(RegisteredDeserializer):
    """Decodes framed Protobuf."""

    form = "Protobuf"

    def _decode_group(self, work: FramedDecoding, group: FramedGroup) -> None:
        parts, nameless = split_messages(group.payload)
        for row in group.rows[nameless].tolist():
            work.reject(row, "the indexes behind its schema id name no message")
        for indexes, at, payload in parts:
            self._decode_messages(work, group, indexes, group.rows[at], payload)

    def _decode_messages(
        self, work: FramedDecoding, group: FramedGroup, indexes: Indexes, rows: Rows, payload: ByteWindows
    ) -> None:
        writer = work.find_schema(
            group,
            rows,
            lambda: parse_writer_schema(self.fetch(group.number), indexes, self.wanted, work.alone),
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
