"""Keys, headers and values of Debezium's outbox router -> texts and payloads, whichever converter wrote them. No I/O.

What becomes of a message does not depend on those beside it: messages of each form are decoded by themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.variants import to_json_text
from connector.sink.convert.events.variant_documents import dump_exactly
from serde.arrays import Ints, Mask, children, valid_mask
from serde.faults import RecordError, Stage, Unfit
from serde.json.row_reader import MAX_TEXT_DEPTH, parse_message
from serde.messages import DecodedMessages, MessageBlock
from serde.plain import decode_text

Decode = Callable[[pa.Array, Stage, pa.StructType], DecodedMessages]
"""Reads keys or values, where a single value counts as a field of the given name."""
Columns = dict[str, pa.Array]

_MAGIC = rb"^\x00"
_QUOTED, _FRAMED = rb'^\s*"', rb'^\s*\{\s*"schema"\s*:\s*(\{|null)'
_ENVELOPE = rb'^\s*\{\s*"payload"\s*:'
"""The router writes the payload before what it places beside it; a payload may have such a member somewhere itself."""
_NO_PAYLOAD, _EMPTY_PAYLOAD = rb'^\s*\{\s*"payload"\s*:\s*null\s*,', b'{"payload":"",'
_NULL = b"null"


@attrs.frozen
class Reading:
    """How messages are decoded that are no plain text; every: all of them are, as those of a registry."""

    decode: Decode
    every: bool = False

    def find_forms(self, data: pa.Array, bad: Mask) -> list[Ints]:
        """Return the rows that are no texts as they are, those of one form together."""
        if self.every:
            return [np.flatnonzero(np.asarray(data.is_valid()))]
        masks = (bad | _match(data, _MAGIC), _match(data, _QUOTED), _match(data, _FRAMED))
        return [np.flatnonzero(mask) for mask in masks]


def read_texts(data: pa.Array, name: str, read: Reading | None) -> tuple[pa.StringArray, list[RecordError]]:
    """Keys as text: those behind a schema or in quotes are decoded, others are texts as they are."""
    text, bad = decode_text(data)
    faults = list[RecordError]()
    for rows in () if read is None else read.find_forms(data, bad):
        columns, wrong = _decode_rows(data, rows, name, "KEY_CONVERTER", read)
        faults += wrong
        bad[rows] = False
        if name in columns:
            text = pc.coalesce(_to_plain_text(columns[name]), _blank(text, rows))
    return text, [*faults, *_refuse_bytes(bad, "KEY_CONVERTER")]


def read_values(
    data: pa.Array, name: str, read: Reading | None, *, keep_bytes: bool
) -> tuple[Columns, list[RecordError]]:
    """Values as texts, or as bytes where these are to be kept, by the name of a column; and what stands beside them."""
    text, bad = decode_text(data)
    columns, faults = Columns(), list[RecordError]()
    if read is not None:
        text = pc.if_else(pc.equal(data, _NULL).fill_null(False), pa.scalar(None, pa.string()), text)
        for rows in read.find_forms(data, bad):
            more, wrong = _decode_rows(data, rows, name, "VALUE_CONVERTER", read, text, keep_bytes=keep_bytes)
            columns, text, bad[rows] = _merge(columns, more), _blank(text, rows), False
            faults += wrong
        if not read.every:
            rows = np.flatnonzero(_match(data, _ENVELOPE))
            more, wrong = _decode_envelopes(data, rows, name, read, text)
            columns, text = _merge(columns, more), _blank(text, rows)
            faults += wrong
    return _merge({name: text}, columns), [*faults, *_refuse_bytes(bad, "VALUE_CONVERTER")]


def _decode_envelopes(
    data: pa.Array, rows: Ints, name: str, read: Reading, text: pa.Array
) -> tuple[Columns, list[RecordError]]:
    """Columns of JSON without schema that begins with a payload: a text, or, expanded, anything.

    Cost: Python for each message whose payload is expanded.
    """
    if not len(rows):
        return {}, []
    bare = _match(data, _NO_PAYLOAD)
    if bare.any():
        data = pc.replace_substring_regex(data, _NO_PAYLOAD.decode(), _EMPTY_PAYLOAD.decode())
    columns, faults = _decode_rows(data, rows, name, "VALUE_CONVERTER", read, text)
    again = {fault.row: message for fault in faults if (message := _quote_payload(data[fault.row].as_py(), name))}
    if again:
        places = np.array(list(again), np.int64)
        quoted = _lay_out(pa.array(list(again.values()), data.type), places, len(data))
        more, wrong = _decode_rows(quoted, places, name, "VALUE_CONVERTER", read, text)
        columns, faults = _merge(columns, more), [*(fault for fault in faults if fault.row not in again), *wrong]
    if bare.any() and name in columns:
        none = pc.and_(pa.array(bare), pc.equal(columns[name], "").fill_null(False))
        columns[name] = pc.if_else(none, pa.scalar(None, pa.string()), columns[name])
    return columns, faults


def _quote_payload(message: bytes, name: str) -> bytes | None:
    """The message with its payload as a text; None for one whose payload is no object and no list."""
    try:
        event = parse_message(message, exact=True, max_depth=MAX_TEXT_DEPTH)
    except Unfit:
        return None
    if not isinstance(event, dict) or not isinstance(event.get(name), dict | list):
        return None
    return dump_exactly({**event, name: dump_exactly(event[name])}).encode()


def _decode_rows(
    data: pa.Array,
    rows: Ints,
    name: str,
    stage: Stage,
    read: Reading | None,
    raw: pa.Array | None = None,
    *,
    keep_bytes: bool = False,
) -> tuple[Columns, list[RecordError]]:
    """Columns over all records of those that have to be decoded; their faults by record."""
    if read is None or not len(rows):
        return {}, []
    decoded = read.decode(data.take(pa.array(rows)), stage, pa.struct([(name, pa.string())]))
    faults = [attrs.evolve(fault, row=int(rows[fault.row]), stage=stage) for fault in decoded.faults]
    columns = Columns()
    for block in decoded.blocks:
        places = rows[block.rows]
        own = None if raw is None or block.schema_id else raw.take(pa.array(places))
        own_columns = _read_block(block, name, stage, own, keep_bytes=keep_bytes)
        columns = _merge(columns, {field: _lay_out(column, places, len(data)) for field, column in own_columns.items()})
    return columns, faults


def _read_block(block: MessageBlock, name: str, stage: Stage, raw: pa.Array | None, *, keep_bytes: bool) -> Columns:
    """The value itself, and what stands beside it; a struct that is no such envelope is one value, as JSON.

    raw: the texts of messages without schema, which are their JSON already.
    """
    columns = dict(zip(block.fields.type.names, children(block.fields), strict=True))
    others = {field: column for field, column in columns.items() if field != name}
    if name not in columns or (block.schema_id and block.fields.type.names[0] != name):
        return {name: to_json_text(block.fields, keep_nulls=bool(block.optional)) if raw is None else raw}
    nested = [column for column in others.values() if pa.types.is_nested(column.type)]
    if nested and raw is None:
        return {name: to_json_text(block.fields, keep_nulls=bool(block.optional))}
    value, is_bytes = columns[name], keep_bytes and pa.types.is_binary(columns[name].type)
    plain = is_bytes or stage == "KEY_CONVERTER"
    value = value if plain else to_json_text(value, keep_nulls=bool(block.optional))
    if not nested:
        return {**others, name: value}
    # Without schema each message tells itself what it has.
    whole = pa.array(np.logical_or.reduce([valid_mask(column) for column in nested]))
    flat = {field: column for field, column in others.items() if not pa.types.is_nested(column.type)}
    alone = {field: pc.if_else(whole, pa.scalar(None, column.type), column) for field, column in flat.items()}
    return {**alone, name: pc.if_else(whole, raw, value)}


def _merge(one: Columns, other: Columns) -> Columns:
    """Columns of both; where both have a value, that of the first."""
    columns = dict(one)
    for name, column in other.items():
        before = columns.get(name)
        if before is not None and before.type != column.type:
            kinds = (before.type, column.type)
            common = pa.binary() if any(map(pa.types.is_binary, kinds)) else pa.string()
            before, column = before.cast(common), column.cast(common)  # noqa: PLW2901
        columns[name] = column if before is None else pc.coalesce(before, column)
    return columns


def _lay_out(values: pa.Array, rows: Ints, count: int) -> pa.Array:
    """Values over all records, null but at these."""
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _blank(text: pa.StringArray, rows: Ints) -> pa.StringArray:
    """The texts without those of some records."""
    own = np.zeros(len(text), np.bool_)
    own[rows] = True
    return pc.if_else(pa.array(own), pa.scalar(None, pa.string()), text)


def _to_plain_text(column: pa.Array) -> pa.StringArray:
    """Single values as text: what is a text in JSON without its quotes."""
    text = to_json_text(column, keep_nulls=True)
    plain = pa.types.is_string(column.type) or pa.types.is_nested(column.type)
    return text if plain else pc.replace_substring_regex(text, r'^"(.*)"$', r"\1")


def _match(data: pa.Array, pattern: bytes) -> Mask:
    matches: Mask = np.asarray(pc.match_substring_regex(data, pattern.decode()).fill_null(False))
    return matches


def _refuse_bytes(bad: Mask, stage: Stage) -> list[RecordError]:
    return [RecordError(row, stage, "no UTF-8 text") for row in np.flatnonzero(bad).tolist()]
