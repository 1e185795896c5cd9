"""Columns of one side of records + what is the same in all of them -> Avro in Confluent's frame, a batch at a time.

A frame is 0, four bytes of schema id, the datum. What does not differ from record to record is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from serde.avro.codec import Codec, Record
from serde.avro.encode import Pieces, datums, named
from serde.avro.schema import parse
from serde.bits import valid_of


@frozen
class Avro:
    """How one side of records is written: schema, its id in the registry, fields with one value in all records."""

    text: str
    number: int
    constant: Mapping[str, Any] = field(factory=dict)

    @property
    def head(self) -> bytes:
        """What is in front of every datum."""
        return b"\x00" + self.number.to_bytes(4, "big")

    def message(self, payload: Mapping[str, Any]) -> bytes:
        """A single message."""
        codec = codec_of(self.text)
        made: bytes = datums(codec, pa.array([payload], codec.wire))[0].as_py()
        return self.head + made


def codec_of(text: str) -> Record:
    """How datums of a schema lie; ValueError where the schema is no record that can be written."""
    writer = parse((text,))
    if writer.schema.fault is not None or not isinstance(writer.codec, Record):
        raise ValueError(writer.schema.fault or "writer schema is not a record")
    return writer.codec


@define(eq=False, slots=False)
class Framer:
    """Writes batches of one side."""

    avro: Avro

    def messages(self, columns: pa.StructArray) -> pa.BinaryArray:
        """The messages of a struct of all fields that are not constant, by name or, without constants, by place.

        Null where the struct is. Raises Unfit: a value that its schema has not.
        """
        valid = valid_of(columns)
        rows = columns.filter(pa.array(valid)) if columns.null_count else columns
        out = Pieces(len(rows))
        out.constant(self.avro.head)
        arrays = dict(zip(self._varying, rows.flatten(), strict=True))
        for name, piece in self._plan:
            if isinstance(piece, bytes):
                out.constant(piece)
            else:
                named(name, piece, arrays[name], out, None)
        made = out.joined()
        return made if len(rows) == len(columns) else _spread(made, valid)

    @cached_property
    def _varying(self) -> list[str]:
        return [member.name for member in codec_of(self.avro.text).members if member.name not in self.avro.constant]

    @cached_property
    def _plan(self) -> list[tuple[str, bytes | Codec]]:
        """Fields in order, runs of constant ones as their bytes."""
        plan: list[tuple[str, bytes | Codec]] = []
        for member in codec_of(self.avro.text).members:
            if member.name not in self.avro.constant:
                plan.append((member.name, member.codec))
                continue
            value = pa.array([self.avro.constant[member.name]], member.codec.wire)
            data: bytes = datums(member.codec, value)[0].as_py()
            if plan and isinstance(plan[-1][1], bytes):
                data = plan.pop()[1] + data  # type: ignore[operator]
            plan.append((member.name, data))
        return plan


def _spread(made: pa.BinaryArray, valid: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.BinaryArray:
    """The messages where they belong, null between them."""
    place = np.cumsum(valid) - 1
    return made.take(pa.array(place, mask=~valid))
