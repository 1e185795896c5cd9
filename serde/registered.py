"""Bytes behind a registry's frame -> blocks: what is the same in every format whose schemas a registry has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from attrs import define, field

from serde.byte_windows import byte_windows
from serde.connect.connect_schema import ConnectSchema, make_block
from serde.connect.logical_columns import to_logical_rows
from serde.connect.primitive_keys import key_field_name, may_be_primitive
from serde.connect.text_columns import with_text_columns
from serde.events.kinds.sourceless import complete_envelopes
from serde.faults import RecordError, Stage
from serde.frames import ConfluentFrame, Frame, FramedGroup
from serde.messages import DecodedMessages, MessageBlock, Rows
from serde.wire_format import FetchSchema, UnknownSchema

T = TypeVar("T")


@define(eq=False)
class FramedDecoding:
    """One call of decode: what was found so far.

    alone: the name of a key that is one value; words, numbers: columns that become text.
    """

    stage: Stage
    alone: str | None
    words: frozenset[str]
    numbers: frozenset[str]
    tombstones: list[Rows]
    blocks: list[MessageBlock] = field(factory=list)
    faults: list[RecordError] = field(factory=list)

    def reject(self, row: int, reason: str) -> None:
        """Note a row that cannot be read, and why."""
        self.faults.append(RecordError(row, self.stage, reason))

    def find_schema(
        self, group: FramedGroup, rows: Rows, parse: Callable[[], T], connect_schema_of: Callable[[T], ConnectSchema]
    ) -> T | None:
        """Return what `parse` makes of the schema of these rows; None when they are all faults."""
        try:
            schema = parse()
            reason = connect_schema_of(schema).fault
        except UnknownSchema as unknown:
            schema, reason = None, str(unknown)
        if reason is None:
            return schema
        for row in rows.tolist():
            self.reject(row, f"schema id {group.name}: {reason}")
        return None

    def to_text_columns(self, schema: ConnectSchema) -> ConnectSchema:
        """Return the schema with those columns as text that are to be."""
        return with_text_columns(schema, self.words, self.numbers)

    def add_block(self, rows: Rows, wire: pa.StructArray, schema: ConnectSchema) -> None:
        """Take in wire columns of these rows; values that are none of their type are faults."""
        schema = self.to_text_columns(schema)
        rows, fields, unfit = to_logical_rows(rows, wire, schema.node)
        for row, reason in unfit:
            self.reject(row, reason)
        self.blocks.extend(complete_envelopes(make_block(rows, fields, schema)))

    def finish(self) -> DecodedMessages:
        """Return the outcome."""
        tombstones = np.sort(np.concatenate(self.tombstones)).astype(np.int64)
        faults = tuple(sorted(self.faults, key=lambda fault: fault.row))
        return DecodedMessages(tuple(block for block in self.blocks if len(block.rows)), tombstones, faults)


@define(eq=False)
class RegisteredDeserializer(ABC):
    """Decodes framed messages; `fetch` gives writer schemas by id and does its own caching."""

    form: ClassVar[str]
    """The format's name, for reasons."""

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
        work = FramedDecoding(stage, alone, self.words | text_columns, self.numbers, [np.flatnonzero(nulls)])
        for group in self.frame.split(texts, np.flatnonzero(~nulls), self.form, work.reject):
            self._decode_group(work, group)
        return work.finish()

    @abstractmethod
    def _decode_group(self, work: FramedDecoding, group: FramedGroup) -> None:
        """Read the messages of one schema id."""
