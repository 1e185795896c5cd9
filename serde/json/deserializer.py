"""JSON bytes -> blocks: Kafka Connect's JsonConverter read backwards, a column at a time.

frames -> payloads of one schema -> wire columns (reader, rows one by one where it cannot) -> logical columns -> blocks
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field

from serde.arrays import Mask
from serde.byte_windows import ByteWindows, byte_windows
from serde.connect.connect_schema import ConnectSchema, make_block, narrow_schema
from serde.connect.logical_columns import to_logical_rows
from serde.connect.schema_node import Node, Struct, needs_exact
from serde.connect.text_columns import with_text_columns
from serde.events.kinds.event_kind import (
    TRANSACTION_METADATA,
    TRANSACTION_METADATA_TYPE,
    is_transaction_metadata,
    mark_transaction_metadata,
    split_event_kinds,
)
from serde.events.kinds.sourceless import add_source, complete_envelopes, is_sourceless
from serde.faults import RecordError, Stage, Unfit
from serde.json.columns.column_reader import ReadResult
from serde.json.columns.trailer_reader import TrailerReader
from serde.json.empty_columns import name_as_written, prune_empty
from serde.json.event_metadata import mend_metadata
from serde.json.json_types import node_of
from serde.json.payload_frames import drop_payload_frames
from serde.json.primitive_keys import wrap_values
from serde.json.row_reader import parse_message, read_value, to_array, unwrap_payload
from serde.json.schema_framing import FramePart, JsonMode, MessageFramer, SchemaGroup
from serde.json.schemaless import SchemalessReader
from serde.json.side_events import HEARTBEAT, HEARTBEAT_TYPE, mark_heartbeats, split_side_events
from serde.json.type_inference import fill_unknown
from serde.messages import DecodedMessages, MessageBlock, Rows

_CACHED_TYPES = 256


@define(eq=False)
class JsonDeserializer:
    """Decodes Connect JSON; remembers types of messages without schema to be faster next time."""

    format: JsonMode = "auto"
    wanted: frozenset[str] | None = None
    words: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    any_case: bool = False
    _trailers: TrailerReader = field(init=False)
    _bare: SchemalessReader = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the readers, which remember."""
        self._trailers = TrailerReader(self.wanted)
        self._bare = SchemalessReader(self._trailers, self.any_case)

    def decode(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None = None,
        text_columns: frozenset[str] = frozenset(),
    ) -> DecodedMessages:
        """See `wire_format.Deserializer.decode`."""
        texts, nulls = byte_windows(data)
        texts = drop_payload_frames(texts, nulls, stage, expected)
        if stage == "KEY_CONVERTER":
            texts, nulls = wrap_values(texts, nulls, expected)
        frames = MessageFramer(texts, self.format, stage)
        frames.sort(nulls)
        blocks: list[MessageBlock] = []
        for group in frames.groups.values():
            blocks.extend(self._decode_group(frames, group, expected, self.words | text_columns))
        frames.faults.sort(key=lambda fault: fault.row)
        tombstones = np.sort(np.concatenate(frames.tombstones)).astype(np.int64)
        return DecodedMessages(tuple(block for block in blocks if len(block.rows)), tombstones, tuple(frames.faults))

    def _decode_group(
        self, frames: MessageFramer, group: SchemaGroup, expected: pa.StructType | None, words: frozenset[str]
    ) -> list[MessageBlock]:
        if group.schema is None:
            return self._decode_without_schema(frames, group, expected)
        schema = narrow_schema(group.schema, self.wanted)
        return decode_with_schema(frames, group, with_text_columns(schema, words, self.numbers), self._trailers)

    def _decode_without_schema(
        self, frames: MessageFramer, group: SchemaGroup, expected: pa.StructType | None
    ) -> list[MessageBlock]:
        """Messages without a schema block: the type is found, the wire types are the result."""
        part = group.columnar()
        metadata, heartbeats = mark_transaction_metadata(part.texts), mark_heartbeats(part.texts)
        if frames.stage == "VALUE_CONVERTER" and (metadata.any() or heartbeats.any()):
            # Of another kind than what is beside them: neither may tell the types of the other.
            kinds = (
                (metadata, TRANSACTION_METADATA_TYPE, TRANSACTION_METADATA),
                (heartbeats, HEARTBEAT_TYPE, HEARTBEAT),
            )
            others = SchemaGroup(None, [_pick(part, ~(metadata | heartbeats))])
            others.loose = group.loose
            named = [
                evolve(block, name=name)
                for mask, kind, name in kinds
                for block in (
                    self._read_bare(frames, SchemaGroup(None, [_pick(part, mask)]), kind) if mask.any() else ()
                )
            ]
            return [*self._read_bare(frames, others, expected), *named]
        blocks = self._read_bare(frames, group, expected)
        return [
            evolve(block, name=TRANSACTION_METADATA)
            if is_transaction_metadata(block, frames.texts.pick(block.rows))
            else block
            for block in blocks
        ]

    def _read_bare(
        self, frames: MessageFramer, group: SchemaGroup, expected: pa.StructType | None
    ) -> list[MessageBlock]:
        part = group.columnar()
        reading, kind = self._bare.read(frames.texts, part, group.loose, expected)
        node = _node_of_found(kind)
        if not isinstance(node, Struct):
            raise TypeError(kind)
        rows, fields = _assemble_rows(frames, group, part, reading, node)
        blocks = split_event_kinds(MessageBlock(rows, fields, "", None, {}), frames.texts)
        if frames.stage == "VALUE_CONVERTER":
            blocks = [part for block in blocks for part in split_side_events(block, frames.texts)]
        if expected is not None and self.any_case:
            expected = name_as_written(expected, fields.type)
        return [evolve(block, fields=_prune_events(block, frames.texts, expected)) for block in blocks]


def _prune_events(block: MessageBlock, texts: ByteWindows, expected: pa.StructType | None) -> pa.StructArray:
    """The messages without columns that hold nothing; envelopes without source with an empty one."""
    if not is_sourceless(block, texts):
        return prune_empty(block.fields, expected)
    return add_source(prune_empty(add_source(block.fields), expected))


@lru_cache(maxsize=_CACHED_TYPES)
def _node_of_found(kind: pa.StructType) -> Node:
    """The tree of a type that was found, once for many reads."""
    return node_of(fill_unknown(kind))


def _pick(part: FramePart, mask: Mask) -> FramePart:
    return FramePart(part.rows[mask], part.texts.pick(mask))


def decode_with_schema(
    frames: MessageFramer, group: SchemaGroup, schema: ConnectSchema, trailers: TrailerReader
) -> list[MessageBlock]:
    """Read messages whose schema is known: it alone says what there is."""
    part = group.columnar()
    if schema.fault is not None:
        frames.faults.extend(
            RecordError(row, frames.stage, schema.fault) for row in (*part.rows.tolist(), *group.loose)
        )
        return []
    if schema.columnar and len(part.rows):
        reading = trailers.read(part.texts, schema.node.wire, strict=False)
    else:
        reading = ReadResult(failed=[np.arange(len(part.rows))])
    rows, wire = _assemble_rows(frames, group, part, reading, schema.node)
    rows, fields, unfit = to_logical_rows(rows, wire, schema.node)
    frames.faults.extend(RecordError(row, frames.stage, reason) for row, reason in unfit)
    return complete_envelopes(make_block(rows, fields, schema))


def _assemble_rows(
    frames: MessageFramer, group: SchemaGroup, part: FramePart, reading: ReadResult, node: Struct
) -> tuple[Rows, pa.StructArray]:
    """Wire rows of a group in row order: columnar parts, and the others read one by one."""
    rows = [part.rows[where] for where, _ in reading.parts]
    arrays = [array for _, array in reading.parts]
    single = [*(row for where in (*reading.failed, *reading.rest) for row in part.rows[where].tolist()), *group.loose]
    if single:
        kept, array = _read_rows(frames, group, single, node)
        rows.append(kept)
        arrays.append(array)
    if not arrays:
        return np.zeros(0, np.int64), pa.array([], node.wire)
    joined, whole = np.concatenate(rows), arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    if len(joined) > 1 and not bool((joined[1:] > joined[:-1]).all()):
        order = np.argsort(joined, kind="stable")
        joined, whole = joined[order], whole.take(pa.array(order))
    return joined, whole


def _read_rows(frames: MessageFramer, group: SchemaGroup, rows: list[int], node: Struct) -> tuple[Rows, pa.StructArray]:
    exact = needs_exact(node)
    kept: list[int] = []
    values: list[object] = []
    for row in rows:
        try:
            values.append(_read_row(frames, group, row, node, exact=exact))
            kept.append(row)
        except Unfit as unfit:
            frames.faults.append(RecordError(row, frames.stage, str(unfit)))
    return np.array(kept, np.int64), to_array(values, node.wire)


def _read_row(frames: MessageFramer, group: SchemaGroup, row: int, node: Struct, *, exact: bool) -> object:
    document = parse_message(frames.texts.text(row), exact=exact, framed=frames.format != "json")
    if frames.format == "json":
        payload = unwrap_payload(document)
    else:
        block, payload = frames.split_frame(document)
        if (block is None) != (group.schema is None):
            raise Unfit("something stands beside schema and payload, or one of them twice")
    if not isinstance(payload, dict):
        raise Unfit("key is not a struct" if frames.stage == "KEY_CONVERTER" else "value is not a struct")
    while True:
        try:
            return read_value(node, payload)
        except Unfit as unfit:
            less = _leave_out(payload, unfit.at) if frames.stage == "VALUE_CONVERTER" else None
            if less is None:
                raise
            payload = less


def _leave_out(event: dict[str, Any], at: tuple[str, ...]) -> dict[str, Any] | None:
    """The event with what cannot be read at a place made readable; None where it is needed."""
    if at[:1] != ("before",):
        return mend_metadata(event, at)
    # `before` is needed only where nothing is after; what stands beside the value there may be the row's key.
    before = event["before"]
    needed = not isinstance(event.get("after"), dict) or "op" not in event or before is None
    if needed:
        return None
    readable = isinstance(before, dict) and len(at) > 1 and before.get(at[1]) is not None
    return {**event, "before": {**before, at[1]: None} if readable else None}
