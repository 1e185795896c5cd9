"""messages -> groups of one schema: tells tombstones, schema blocks and bare payloads apart by bytes,
each distinct block once.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from serde.arrays import Mask
from serde.byte_windows import ByteWindows
from serde.connect.connect_schema import ConnectSchema, parse_document
from serde.faults import RecordError, Stage, Unfit
from serde.json.json_types import JSON_LEAVES, parse_schema_block
from serde.json.row_reader import FRAME_KEYS, MAX_TEXT_DEPTH, parse_message
from serde.messages import Rows

JsonMode = Literal["auto", "json", "json-schema"]
_HEAD = b'{"schema":'
_PAYLOAD = b',"payload":'
_MAX_PREFIXES = 64
_MAX_TRIES = 16
_FIELD = b'{"schema"'
_PLAIN = np.frombuffer(b'"tf-[0123456789', np.uint8)
"""How a value may start that is no schema: a column of that name, in a message that is no frame."""


@frozen(eq=False)
class FramePart:
    """Payloads of one group that may be read by columns: `texts` belong to the input rows `rows`."""

    rows: Rows
    texts: ByteWindows


@define(eq=False)
class SchemaGroup:
    """Messages of one schema (None: without one); `loose` rows must be read one by one."""

    schema: ConnectSchema | None
    parts: list[FramePart] = field(factory=list)
    loose: list[int] = field(factory=list)

    def columnar(self) -> FramePart:
        """All columnar payloads in one part, by row."""
        if len(self.parts) == 1:
            return self.parts[0]
        if not self.parts:
            none = np.zeros(0, np.int64)
            return FramePart(none, ByteWindows(pa.py_buffer(b""), none, none))
        rows = np.concatenate([part.rows for part in self.parts])
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([part.texts.starts for part in self.parts])[order]
        ends = np.concatenate([part.texts.ends for part in self.parts])[order]
        return FramePart(rows[order], ByteWindows(self.parts[0].texts.data, starts, ends))


@define(eq=False)
class MessageFramer:
    """The messages of one array sorted into groups, tombstones and faults."""

    texts: ByteWindows
    format: JsonMode
    stage: Stage
    groups: dict[str, SchemaGroup] = field(factory=dict)
    tombstones: list[Rows] = field(factory=list)
    faults: list[RecordError] = field(factory=list)

    def sort(self, nulls: Mask) -> None:
        """Sorts every row; `nulls` are the absent values."""
        absent = nulls | self.texts.equals(b"null")
        self.tombstones.append(np.flatnonzero(absent))
        rest = np.flatnonzero(~absent)
        if not len(rest):
            return
        whole = self.texts.pick(rest)
        tidy = whole.is_object()
        if self.format == "json":
            self._add_bare(rest[tidy], whole.pick(tidy))
        else:
            rest, tidy = self._group_by_block(rest, tidy)
            self._add_unframed(rest[tidy])
        for row in rest[~tidy].tolist():
            self._parse_loose(row)

    def _group_by_block(self, rows: Rows, tidy: Mask) -> tuple[Rows, Mask]:
        """Takes out the messages that start with a schema block; returns what is left."""
        texts = self.texts.pick(rows)
        framed = tidy & (texts.starts_with(_HEAD + b"{") | texts.starts_with(_HEAD + b"null,"))
        todo = rows[framed]
        for _ in range(_MAX_PREFIXES):
            if not len(todo):
                break
            todo = self._take_next_block(todo)
        for row in todo.tolist():
            self._parse_loose(row)
        return rows[~framed], tidy[~framed]

    def _take_next_block(self, rows: Rows) -> Rows:
        """Groups all rows that share the first row's block; returns the others."""
        prefix = block_prefix(self.texts.text(int(rows[0])))
        if prefix is None:
            self._parse_loose(int(rows[0]))
            return rows[1:]
        texts = self.texts.pick(rows)
        same = texts.starts_with(prefix)
        payloads = texts.pick(same).cut(len(prefix), 1)
        self._add_payloads(prefix[len(_HEAD) : -len(_PAYLOAD)], rows[same], payloads)
        return rows[~same]

    def _add_payloads(self, block: bytes, rows: Rows, payloads: ByteWindows) -> None:
        absent = payloads.equals(b"null")
        if absent.any():
            self.tombstones.append(rows[absent])
            rows, payloads = rows[~absent], payloads.pick(~absent)
        tidy = payloads.is_object()
        if tidy.any():
            group = self._group_of(parse_schema_block(block) if block != b"null" else None)
            group.parts.append(FramePart(rows[tidy], payloads.pick(tidy)))
        for row in rows[~tidy].tolist():
            self._parse_loose(row)

    def _add_unframed(self, rows: Rows) -> None:
        """Objects without a leading schema block: bare payloads,
        unless the block hides behind spaces or another order.
        """
        texts = self.texts.pick(rows)
        odd = texts.starts_with(b'{"payload"') | _may_be_framed(texts)
        second = self.texts.view[texts.starts + 1] if len(rows) else np.zeros(0, np.uint8)
        odd |= (second != ord('"')) & (second != ord("}"))
        if self.format == "json-schema":
            odd[:] = True
        self._add_bare(rows[~odd], texts.pick(~odd))
        for row in rows[odd].tolist():
            self._parse_loose(row)

    def _add_bare(self, rows: Rows, texts: ByteWindows) -> None:
        if len(rows):
            self._group_of(None).parts.append(FramePart(rows, texts))

    def _parse_loose(self, row: int) -> None:
        """Parses one message to see where it belongs."""
        try:
            schema, payload = self.unframe(parse_message(self.texts.text(row)))
        except Unfit as unfit:
            self.faults.append(RecordError(row, self.stage, str(unfit)))
            return
        if payload is None:
            self.tombstones.append(np.array([row], np.int64))
        else:
            self._group_of(schema).loose.append(row)

    def _group_of(self, schema: ConnectSchema | None) -> SchemaGroup:
        return self.groups.setdefault(schema.id if schema else "", SchemaGroup(schema))

    def unframe(self, document: object) -> tuple[ConnectSchema | None, object]:
        """A parsed message as its schema and payload; raises as `split_frame`."""
        block, payload = self.split_frame(document)
        return None if block is None else parse_document(block, JSON_LEAVES), payload

    def split_frame(self, document: object) -> tuple[dict[str, object] | None, object]:
        """A parsed message as its schema block and payload; raises Unfit where the format wants a block and there is
        none.
        """
        framed = isinstance(document, dict) and set(document) == FRAME_KEYS and self.format != "json"
        if framed and isinstance(document, dict):
            block = document["schema"]
            if block is None:
                return None, document["payload"]
            if isinstance(block, dict) and "type" in block:
                return block, document["payload"]
        if self.format == "json-schema":
            raise Unfit(
                "message without schema and payload, though the converter has schemas enabled; set "
                "schemas.enable=false, or leave the converter out (the format is then found per message)"
            )
        return None, document


def _may_be_framed(texts: ByteWindows) -> Mask:
    """True where a text starts with a field `schema`, however Java would have spaced it, that may be a schema block."""
    odd = texts.starts_with(_FIELD) & (texts.sizes > len(_HEAD))
    if odd.any():
        at = texts.starts[odd] + len(_FIELD)
        odd[odd] = (texts.view[at] != ord(":")) | ~np.isin(texts.view[at + 1], _PLAIN)
    return odd


def block_prefix(message: bytes) -> bytes | None:
    """`{"schema":<block>,"payload":` of a message as Java writes it, None for any other form.

    The block is a whole JSON value, so the first cut that parses is the right one.
    """
    at = -1
    for _ in range(_MAX_TRIES):
        at = message.find(_PAYLOAD, at + 1)
        if at < 0:
            return None
        try:
            parse_message(message[len(_HEAD) : at], max_depth=MAX_TEXT_DEPTH)
        except Unfit:
            continue
        return message[: at + len(_PAYLOAD)]
    return None
