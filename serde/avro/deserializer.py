"""Avro bytes behind a registry's frame -> blocks, one per schema id."""

from __future__ import annotations

import pyarrow as pa
from attrs import define

from serde.arrays import children, valid_mask
from serde.avro.codec import Optional, Union
from serde.avro.datum_reader import read_datums
from serde.avro.writer_schema import parse_writer_schema
from serde.connect.connect_schema import branch_schemas
from serde.frames import FramedGroup
from serde.registered import FramedDecoding, RegisteredDeserializer


@define(eq=False)
class AvroDeserializer(RegisteredDeserializer):
    """Decodes framed Avro."""

    form = "Avro"

    def _decode_group(self, work: FramedDecoding, group: FramedGroup) -> None:
        writer = work.find_schema(
            group,
            group.rows,
            lambda: parse_writer_schema(self.fetch(group.number), self.wanted, work.alone),
            lambda found: found.schema,
        )
        if writer is None:
            return
        where, wire, faults = read_datums(group.payload, writer.codec)
        for index, reason in faults.items():
            work.reject(int(group.rows[index]), f"Avro datum of schema id {group.name} {reason}")
        rows = group.rows[where]
        if isinstance(writer.codec, Optional | Union) and wire.null_count:
            present = valid_mask(wire)
            work.tombstones.append(rows[~present])
            rows, wire = rows[present], wire.filter(pa.array(present))
        branches = branch_schemas(writer.schema)
        if branches is None:
            work.add_block(rows, wire, writer.schema)
            return
        for (name, schema), column in zip(branches.items(), children(wire), strict=True):
            own = valid_mask(column)
            if schema is not None and own.any():
                work.add_block(rows[own], column.filter(pa.array(own)), schema)
            for row in rows[own].tolist() if schema is None else ():
                work.reject(row, f"{name} of a union is no record")
