"""JSON behind a registry's frame -> blocks: payloads as Connect's JSON has them, their schema by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field

from serde.byte_windows import byte_windows
from serde.connect.connect_schema import ConnectSchema, narrow_schema
from serde.connect.primitive_keys import key_field_name, may_be_primitive
from serde.connect.text_columns import with_text_columns
from serde.faults import RecordError, Stage
from serde.frames import ConfluentFrame, Frame, FramedGroup
from serde.json.deserializer import decode_with_schema
from serde.json.json_schema import parse_json_schema
from serde.json.primitive_keys import wrap_values
from serde.json.schema_framing import MessageFramer
from serde.json.trailer_reader import TrailerReader
from serde.messages import DecodedMessages, MessageBlock, Rows
from serde.wire_format import FetchSchema, UnknownSchema


@define(eq=False)
class RegisteredJsonDeserializer:
    """Decodes framed JSON; `fetch` gives JSON schemas by id and does its own caching."""

    fetch: FetchSchema
    wanted: frozenset[str] | None = None
    words: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    frame: Frame = ConfluentFrame()
    trailers: TrailerReader = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Remember how envelopes end."""
        self.trailers = TrailerReader(self.wanted)

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
        work = _Decoding(self, stage, alone, self.words | text_columns, [np.flatnonzero(nulls)])
        for group in self.frame.split(texts, np.flatnonzero(~nulls), "JSON", work.add_fault):
            work.decode_group(group)
        tombstones = np.sort(np.concatenate(work.tombstones)).astype(np.int64)
        faults = tuple(sorted(work.faults, key=lambda fault: fault.row))
        return DecodedMessages(tuple(block for block in work.blocks if len(block.rows)), tombstones, faults)


@define(eq=False)
class _Decoding:
    """One call of decode."""

    converter: RegisteredJsonDeserializer
    stage: Stage
    alone: str | None
    words: frozenset[str]
    tombstones: list[Rows]
    blocks: list[MessageBlock] = field(factory=list)
    faults: list[RecordError] = field(factory=list)

    def decode_group(self, group: FramedGroup) -> None:
        """Read the messages of one schema."""
        schema = self._schema(group)
        if schema is None:
            return
        nulls, payload = np.zeros(len(group.rows), np.bool_), group.payload
        if self.alone is not None:
            payload, nulls = wrap_values(payload, nulls, pa.struct([(self.alone, pa.null())]))
        framer = MessageFramer(payload, "json", self.stage)
        framer.sort(nulls)
        for found in framer.groups.values():
            told = with_text_columns(narrow_schema(schema, self.converter.wanted), self.words, self.converter.numbers)
            for block in decode_with_schema(framer, found, told, self.converter.trailers):
                self.blocks.append(evolve(block, rows=group.rows[block.rows]))
        self.tombstones.extend(group.rows[rows] for rows in framer.tombstones)
        for fault in framer.faults:
            self.add_fault(int(group.rows[fault.row]), fault.reason)

    def _schema(self, group: FramedGroup) -> ConnectSchema | None:
        """The schema of these messages; None when they are all faults."""
        try:
            schema = parse_json_schema(self.converter.fetch(group.number), self.alone)
            reason = schema.fault
        except UnknownSchema as unknown:
            schema, reason = None, str(unknown)
        if reason is None:
            return schema
        for row in group.rows.tolist():
            self.add_fault(row, f"schema id {group.name}: {reason}")
        return None

    def add_fault(self, row: int, reason: str) -> None:
        """Note a record that cannot be read."""
        self.faults.append(RecordError(row, self.stage, reason))
