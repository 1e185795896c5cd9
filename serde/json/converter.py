"""JSON bytes -> blocks: Kafka Connect's JsonConverter read backwards, a column at a time.

frames -> payloads of one schema -> wire columns (reader, rows one by one where it cannot) -> logical columns -> blocks
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field

from serde.connect.connect_schema import Schema, narrowed, node_of
from serde.connect.iso_text import worded
from serde.connect.row_images import logical_rows
from serde.connect.schema_node import Struct, needs_exact
from serde.events.event_kind import split_shapes
from serde.faults import Fault, Stage, Unfit
from serde.json.column_reader import Reader, Reading
from serde.json.json_lines import texts_of
from serde.json.primitive_keys import wrapped
from serde.json.row_reader import load, read, to_array
from serde.json.schema_framing import Format, Frames, Group, Part
from serde.json.schemaless import Bare, payload_of
from serde.json.type_inference import filled, pruned
from serde.messages import Block, Decoded, Rows


@define(eq=False)
class JsonConverter:
    """Decodes Connect JSON; remembers types of messages without schema to be faster next time."""

    format: Format = "auto"
    wanted: frozenset[str] | None = None
    words: frozenset[str] = frozenset()
    _bare: Bare = field(factory=Bare)

    def decode(self, data: pa.Array | pa.ChunkedArray, stage: Stage, expected: pa.StructType | None = None) -> Decoded:
        """See `serde.converter.Converter.decode`."""
        texts, nulls = texts_of(data)
        if stage == "KEY_CONVERTER":
            texts, nulls = wrapped(texts, nulls, expected)
        frames = Frames(texts, self.format, stage)
        frames.sort(nulls)
        blocks: list[Block] = []
        for group in frames.groups.values():
            blocks.extend(self._group(frames, group, expected))
        frames.faults.sort(key=lambda fault: fault.row)
        tombstones = np.sort(np.concatenate(frames.tombstones)).astype(np.int64)
        return Decoded(tuple(block for block in blocks if len(block.rows)), tombstones, tuple(frames.faults))

    def _group(self, frames: Frames, group: Group, expected: pa.StructType | None) -> list[Block]:
        if group.schema is None:
            return self._without(frames, group, expected)
        return _with(frames, group, worded(narrowed(group.schema, self.wanted), self.words))

    def _without(self, frames: Frames, group: Group, expected: pa.StructType | None) -> list[Block]:
        """Messages without a schema block: the type is found, the wire types are the result."""
        part = group.columnar()
        reading, kind = self._bare.read(frames.texts, part, group.loose, expected)
        node = node_of(filled(kind))
        if not isinstance(node, Struct):
            raise TypeError(kind)
        rows, fields = _assemble(frames, group.loose, part, reading, node)
        blocks = split_shapes(Block(rows, fields, "", None, {}))
        return [evolve(block, fields=pruned(block.fields, kind, expected)) for block in blocks]


def _with(frames: Frames, group: Group, schema: Schema) -> list[Block]:
    """Messages with a schema block: it alone says what there is."""
    part = group.columnar()
    if schema.fault is not None:
        frames.faults.extend(Fault(row, frames.stage, schema.fault) for row in (*part.rows.tolist(), *group.loose))
        return []
    if schema.columnar and len(part.rows):
        reading = Reader(part.texts, schema.node.wire, strict=False).read()
    else:
        reading = Reading(failed=[np.arange(len(part.rows))])
    rows, wire = _assemble(frames, group.loose, part, reading, schema.node)
    rows, fields, unfit = logical_rows(rows, wire, schema.node)
    frames.faults.extend(Fault(row, frames.stage, reason) for row, reason in unfit)
    return [Block(rows, fields, schema.id, schema.name, schema.optional, schema.documents)]


def _assemble(
    frames: Frames, loose: list[int], part: Part, reading: Reading, node: Struct
) -> tuple[Rows, pa.StructArray]:
    """Wire rows of a group in row order: columnar parts, and the others read one by one."""
    rows = [part.rows[where] for where, _ in reading.parts]
    arrays = [array for _, array in reading.parts]
    single = [*(row for where in (*reading.failed, *reading.rest) for row in part.rows[where].tolist()), *loose]
    if single:
        kept, array = _one_by_one(frames, single, node)
        rows.append(kept)
        arrays.append(array)
    if not arrays:
        return np.zeros(0, np.int64), pa.array([], node.wire)
    joined, whole = np.concatenate(rows), arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    if len(joined) > 1 and not bool((joined[1:] > joined[:-1]).all()):
        order = np.argsort(joined, kind="stable")
        joined, whole = joined[order], whole.take(pa.array(order))
    return joined, whole


def _one_by_one(frames: Frames, rows: list[int], node: Struct) -> tuple[Rows, pa.StructArray]:
    exact = needs_exact(node)
    kept: list[int] = []
    values: list[object] = []
    for row in rows:
        try:
            values.append(_one(frames, row, node, exact=exact))
            kept.append(row)
        except Unfit as unfit:
            frames.faults.append(Fault(row, frames.stage, str(unfit)))
    return np.array(kept, np.int64), to_array(values, node.wire)


def _one(frames: Frames, row: int, node: Struct, *, exact: bool) -> object:
    document = load(frames.texts.text(row), exact=exact)
    payload = payload_of(document) if frames.format == "json" else frames.unframe(document)[1]
    if not isinstance(payload, dict):
        raise Unfit("key is not a struct" if frames.stage == "KEY_CONVERTER" else "value is not a struct")
    try:
        return read(node, payload)
    except Unfit as unfit:
        # `before` is needed only where nothing is after.
        if unfit.at[:1] != ("before",) or not isinstance(payload.get("after"), dict) or "op" not in payload:
            raise
        return read(node, {**payload, "before": None})
