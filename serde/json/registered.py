"""JSON behind a registry's frame -> blocks: payloads as Connect's JSON has them, their schema by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field

from serde.connect.connect_schema import narrow_schema
from serde.frames import FramedGroup
from serde.json.columns.trailer_reader import TrailerReader
from serde.json.deserializer import decode_with_schema
from serde.json.json_schema import parse_json_schema
from serde.json.primitive_keys import wrap_values
from serde.json.schema_framing import MessageFramer
from serde.registered import FramedDecoding, RegisteredDeserializer


@define(eq=False)
class RegisteredJsonDeserializer(RegisteredDeserializer):
    """Decodes framed JSON; schemas are JSON schemas."""

    form = "JSON"
    trailers: TrailerReader = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Remember how envelopes end."""
        self.trailers = TrailerReader(self.wanted)

    def _decode_group(self, work: FramedDecoding, group: FramedGroup) -> None:
        schema = work.find_schema(
            group,
            group.rows,
            lambda: parse_json_schema(self.fetch(group.number), work.alone),
            lambda framed: framed,
        )
        if schema is None:
            return
        nulls, payload = np.zeros(len(group.rows), np.bool_), group.payload
        if work.alone is not None:
            payload, nulls = wrap_values(payload, nulls, pa.struct([(work.alone, pa.null())]))
        framer = MessageFramer(payload, "json", work.stage)
        framer.sort(nulls)
        text_schema = work.to_text_columns(narrow_schema(schema, self.wanted))
        for framed in framer.groups.values():
            for block in decode_with_schema(framer, framed, text_schema, self.trailers):
                work.blocks.append(evolve(block, rows=group.rows[block.rows]))
        work.tombstones.extend(group.rows[rows] for rows in framer.tombstones)
        for fault in framer.faults:
            work.reject(int(group.rows[fault.row]), fault.reason)
