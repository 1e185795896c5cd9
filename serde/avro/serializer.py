"""Columns of one side of records + what is the same in all of them -> Avro in Confluent's frame, a batch at a time.

A frame is 0, four bytes of schema id, the datum. What does not differ from record to record is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from serde.arrays import Ints, Mask
from serde.avro.codec import Codec, Optional, Record
from serde.avro.encoder import DatumBuilder, encode_datums, encode_records, write_column
from serde.avro.writer_schema import parse_writer_schema
from serde.wire_format import BEFORE, FIRST_OF_TWO, SECOND_OF_TWO, TOMBSTONE

_BRANCH = 2
_INSERT_OPS = {True: ord("r"), False: ord("c")}


@frozen
class AvroSerializer:
    """How one side of records is written: schema, its id in the registry, fields with one value in all records."""

    text: str
    number: int
    constant: Mapping[str, Any] = field(factory=dict)

    @property
    def head(self) -> bytes:
        """What is in front of every datum."""
        return b"\x00" + self.number.to_bytes(4, "big")

    @property
    def columns(self) -> AvroSerializer:
        """Writes columns too."""
        return self

    def message(self, payload: Mapping[str, Any]) -> bytes:
        """See `wire_format.Serializer.message`."""
        codec = parse_record_codec(self.text)
        datum: bytes = encode_datums(codec, pa.array([payload], codec.wire))[0].as_py()
        return self.head + datum

    def messages(self, columns: Sequence[pa.Array], count: int) -> pa.BinaryArray:
        """See `wire_format.ColumnSerializer.messages`."""
        return encode_records(parse_record_codec(self.text), columns, count, self.head)

    def envelopes(self, *, reads: bool, transaction: str) -> AvroEnvelopeSerializer:
        """See `wire_format.ColumnSerializer.envelopes`."""
        return AvroEnvelopeSerializer(self, reads, transaction)


def parse_record_codec(text: str) -> Record:
    """How datums of a schema lie; ValueError where the schema is no record that can be written."""
    writer = parse_writer_schema((text,))
    if writer.schema.fault is not None or not isinstance(writer.codec, Record):
        raise ValueError(writer.schema.fault or "writer schema is not a record")
    return writer.codec


@define(eq=False, slots=False)
class AvroEnvelopeSerializer:
    """Writes envelopes from rows that hold one image each, so that an image that is not there costs nothing.

    `reads`: a row that comes alone was read, else created. `transaction` is the id in numbered events.
    """

    avro: AvroSerializer
    reads: bool
    transaction: str

    def messages(self, images: Sequence[pa.Array], kinds: Ints, orders: pa.Array | None) -> pa.BinaryArray:
        """See `wire_format.EnvelopeSerializer.messages`."""
        ends = kinds != FIRST_OF_TWO
        has_value = kinds[ends] != TOMBSTONE
        value_rows = np.flatnonzero(kinds != TOMBSTONE)
        if len(value_rows) < len(kinds):
            images = [column.take(pa.array(value_rows)) for column in images]
        last = np.cumsum(kinds != TOMBSTONE)[ends][has_value] - 1
        datums = self._assemble(
            images, kinds[ends][has_value], last, None if orders is None else _order_column(orders, ends, has_value)
        )
        return datums if has_value.all() else datums.take(pa.array(np.cumsum(has_value) - 1, mask=~has_value))

    def _assemble(self, images: Sequence[pa.Array], kinds: Ints, last: Ints, orders: pa.Array | None) -> pa.BinaryArray:
        """kinds: of the last row of each record; last: where its image is."""
        data = self._encode_images(images)
        two = kinds == SECOND_OF_TWO
        out = DatumBuilder(len(kinds))
        out.constant(self.avro.head)
        for name, piece in self._plan:
            match name:
                case "before":
                    _write_image(out, piece, data, last - two, two | (kinds == BEFORE))
                case "after":
                    _write_image(out, piece, data, last, kinds != BEFORE)
                case "op":
                    out.byte(_BRANCH, None)
                    alone = np.where(kinds == BEFORE, ord("d"), _INSERT_OPS[self.reads])
                    out.byte(np.where(two, ord("u"), alone).astype(np.uint8), None)
                case "transaction" if not isinstance(piece, bytes):
                    ids = pa.repeat(pa.scalar(self.transaction), len(kinds))
                    write_column(
                        piece, pa.StructArray.from_arrays([ids, orders, orders], names=["i", "t", "d"]), out, None
                    )
                case _:
                    assert isinstance(piece, bytes)
                    out.constant(piece)
        return out.join()

    def _encode_images(self, images: Sequence[pa.Array]) -> pa.BinaryArray:
        return encode_records(self._row, images, len(images[0]) if images else 0)

    @cached_property
    def _row(self) -> Record:
        codec = next(member.codec for member in parse_record_codec(self.avro.text).members if member.name == "after")
        assert isinstance(codec, Optional)
        assert isinstance(codec.codec, Record)
        return codec.codec

    @cached_property
    def _plan(self) -> list[tuple[str, bytes | Codec]]:
        """Fields in order, runs of constant ones as their bytes."""
        plan: list[tuple[str, bytes | Codec]] = []
        for member in parse_record_codec(self.avro.text).members:
            if member.name not in self.avro.constant:
                plan.append((member.name, member.codec))
                continue
            value = pa.array([self.avro.constant[member.name]], member.codec.wire)
            data: bytes = encode_datums(member.codec, value)[0].as_py()
            if plan and isinstance(plan[-1][1], bytes):
                data = plan.pop()[1] + data  # type: ignore[operator]
            plan.append((member.name, data))
        return plan


def _order_column(orders: pa.Array, ends: Mask, present: Mask) -> pa.Array:
    return orders.take(pa.array(np.flatnonzero(ends)[present]))


def _write_image(out: DatumBuilder, codec: bytes | Codec, data: pa.BinaryArray, places: Ints, present: Mask) -> None:
    """An image, or its absence, of each record; `places` count where it is there."""
    assert isinstance(codec, Optional)
    null = np.uint8(_BRANCH * codec.null)
    out.byte(np.where(present, np.uint8(_BRANCH) - null, null), None)
    if not present.any():
        return
    whole = len(data) == len(places) and present.all()
    out.data(data if whole else data.take(pa.array(places, mask=~present)))
