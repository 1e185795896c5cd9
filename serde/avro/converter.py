"""Avro bytes -> blocks: Confluent's frame (0, four bytes of schema id, datum), one block per schema id."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from attrs import define

from serde.arrays import Mask, valid_of
from serde.avro.codec import Optional
from serde.avro.datum_reader import read
from serde.avro.schema_source import Fetch, UnknownSchema
from serde.avro.writer_schema import Writer, parse
from serde.connect.iso_text import worded
from serde.connect.row_images import logical_rows
from serde.faults import Fault, Stage
from serde.json.json_lines import Texts, texts_of
from serde.json.primitive_keys import field_name, may_be
from serde.messages import Block, Decoded, Rows

_HEAD = 5


@define(eq=False)
class AvroConverter:
    """Decodes Confluent Avro; `fetch` gives writer schemas by id and does its own caching."""

    fetch: Fetch
    wanted: frozenset[str] | None = None
    words: frozenset[str] = frozenset()

    def decode(self, data: pa.Array | pa.ChunkedArray, stage: Stage, expected: pa.StructType | None = None) -> Decoded:
        """See `serde.converter.Converter.decode`; what `fetch` raises besides UnknownSchema goes through."""
        # Every message has its schema; only a key that is one value takes its name from the table.
        alone = field_name(expected) if stage == "KEY_CONVERTER" and may_be(expected) else None
        texts, nulls = texts_of(data)
        work = _Decoding(self, texts, stage, alone, [], [np.flatnonzero(nulls)], [])
        work.run(nulls)
        tombstones = np.sort(np.concatenate(work.tombstones)).astype(np.int64)
        faults = tuple(sorted(work.faults, key=lambda fault: fault.row))
        return Decoded(tuple(block for block in work.blocks if len(block.rows)), tombstones, faults)


@define(eq=False)
class _Decoding:
    """One call of decode."""

    converter: AvroConverter
    texts: Texts
    stage: Stage
    alone: str | None
    blocks: list[Block]
    tombstones: list[Rows]
    faults: list[Fault]

    def run(self, nulls: Mask) -> None:
        rows = np.flatnonzero(~nulls)
        framed = self._framed(rows)
        for number, same in _by_id(self.texts, rows[framed]):
            self._block(number, same)

    def _framed(self, rows: Rows) -> Mask:
        """True where a message has a frame; the others are faults."""
        texts = self.texts.pick(rows)
        magic = (texts.sizes > 0) & (texts.first() == 0)
        framed: Mask = magic & (texts.sizes >= _HEAD)
        if not framed.all():
            for index in np.flatnonzero(~framed).tolist():
                self._fault(int(rows[index]), _frame_fault(int(texts.sizes[index]), magic=bool(magic[index])))
        return framed

    def _block(self, number: int, rows: Rows) -> None:
        writer = self._writer(number, rows)
        if writer is None:
            return
        where, wire, faults = read(self.texts.pick(rows).cut(_HEAD, 0), writer.codec)
        for index, reason in faults.items():
            self._fault(int(rows[index]), f"Avro datum of schema id {number} {reason}")
        rows = rows[where]
        if isinstance(writer.codec, Optional) and wire.null_count:
            there = valid_of(wire)
            self.tombstones.append(rows[~there])
            rows, wire = rows[there], wire.filter(pa.array(there))
        rows, fields, unfit = logical_rows(rows, wire, worded(writer.schema, self.converter.words).node)
        for row, reason in unfit:
            self._fault(row, reason)
        schema = writer.schema
        self.blocks.append(Block(rows, fields, schema.id, schema.name, schema.optional, schema.documents))

    def _writer(self, number: int, rows: Rows) -> Writer | None:
        """The writer schema of these rows; None when they are all faults."""
        try:
            writer = parse(self.converter.fetch(number), self.converter.wanted, self.alone)
            reason = writer.schema.fault
        except UnknownSchema as unknown:
            writer, reason = None, str(unknown)
        if reason is None:
            return writer
        for row in rows.tolist():
            self._fault(row, f"schema id {number}: {reason}")
        return None

    def _fault(self, row: int, reason: str) -> None:
        self.faults.append(Fault(row, self.stage, reason))


def _frame_fault(size: int, *, magic: bool) -> str:
    if not size:
        return "empty message"
    if not magic:
        return "no Avro of a schema registry: its first byte is not 0"
    return "shorter than the five bytes in front of an Avro datum"


def _by_id(texts: Texts, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Schema ids and the rows that have them, ascending."""
    if not len(rows):
        return
    starts, view = texts.starts[rows], texts.view
    ids = np.zeros(len(rows), np.int64)
    for index in range(1, _HEAD):
        ids = ids << 8 | view[starts + index]
    if (ids == ids[0]).all():
        yield int(ids[0]), rows
        return
    for number in np.unique(ids).tolist():
        yield number, rows[ids == number]
