"""CloudEvents' bytes -> blocks whose `data` is read by a format of its own: JSON with its schema beside it, or Avro.

Source: Debezium's CloudEventsConverter, `json.schemas.enable` and `data.serializer.type`. Attributes never have a
schema in JSON, so both are read apart and put together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, evolve, frozen

from serde.arrays import Ints, Mask, children
from serde.byte_windows import ByteWindows, byte_windows, window_array
from serde.connect.values.binary_values import base64_to_binary
from serde.events.kinds.cloudevents import (
    CLOUD_EVENT_FIELDS,
    CLOUD_EVENT_SOURCE,
    CLOUD_OPERATION,
    REQUIRED_ATTRIBUTES,
    is_cloud_document,
    is_framed,
    is_sent_by_debezium,
)
from serde.faults import RecordError, Stage
from serde.messages import DecodedMessages, MessageBlock
from serde.wire_format import Deserializer

_MARK = b'"specversion"'
_SENT = rf'"source"\s*:\s*"{CLOUD_EVENT_SOURCE}'
_OWN = f'"{CLOUD_OPERATION}"|{_SENT}'
_HEAD = r'^\s*\{\s*"id"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*' + _SENT
_ENCODED = '"datacontenttype"\\s*:\\s*"application/avro"'
_DATA = r'"data"\s*:\s*\{\s*"schema"\s*:\s*\{'
_LOOK = re.compile(_OWN.encode())
_SAMPLE = 16
_AVRO = REQUIRED_ATTRIBUTES | {"datacontenttype", "dataschema"}
_UNREADABLE = "CloudEvent whose data is Avro: set value.converter.data.serializer.type and the URL of its registry"


@frozen(eq=False)
class _Kinds:
    """Messages by what their texts show: rows of CloudEvents with data of each kind, and of others; `places` tells
    where `data` begins that has its schema beside it, -1 elsewhere.
    """

    places: Ints
    framed: Ints
    encoded: Ints
    plain: Ints
    others: Ints

    @property
    def apart(self) -> tuple[Ints, ...]:
        """Those that are read as they are, by themselves each: neither tells the types of the others."""
        return tuple(rows for rows in (self.encoded, self.plain, self.others) if len(rows))


@define(eq=False)
class CloudEventsDeserializer:
    """Decodes what `events` does, and the data of CloudEvents by formats of their own.

    attributes, framed: JSON's, of what is around data that has its schema beside it, and of such data; None for events
    that are no JSON. encoded: of data that is bytes; None where nothing was told of those.
    """

    events: Deserializer
    attributes: Deserializer | None = None
    framed: Deserializer | None = None
    encoded: Deserializer | None = None

    def decode(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None = None,
        text_columns: frozenset[str] = frozenset(),
    ) -> DecodedMessages:
        """See `wire_format.Deserializer.decode`."""
        if stage == "KEY_CONVERTER":
            return self.events.decode(data, stage, expected, text_columns)
        found = self._decode_all(data, stage, expected, text_columns)
        blocks: list[MessageBlock] = []
        faults = list(found.faults)
        for block in found.blocks:
            if _holds_encoded(block):
                made = self._decode_encoded(block, stage, text_columns)
                blocks.extend(made.blocks)
                faults.extend(made.faults)
            else:
                blocks.append(block)
        return DecodedMessages(tuple(blocks), found.tombstones, _sort(faults))

    def _decode_all(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None,
        text_columns: frozenset[str],
    ) -> DecodedMessages:
        """Read all messages as what they are.

        Most topics have no CloudEvents, so texts are looked at only where a few of them, or what was read, show some.
        """
        if self.framed is None:
            return self.events.decode(data, stage, expected, text_columns)
        texts, nulls = byte_windows(data)
        found = None
        if not _shows_cloud_events(texts):
            found = self.events.decode(data, stage, expected, text_columns)
            if not _may_hold_cloud_events(found, texts):
                return found
        kinds = _sort_kinds(texts, nulls)
        if not len(kinds.framed) and len(kinds.apart) <= 1:
            return found or self.events.decode(data, stage, expected, text_columns)
        made = []
        if len(kinds.framed):
            own = kinds.framed
            read, odd = self._decode_framed(texts.pick(own), kinds.places[own], stage, text_columns)
            made.append(_place_rows(read, own))
            kinds = evolve(kinds, others=np.sort(np.concatenate([kinds.others, own[odd]])))
        for rows in kinds.apart:
            some = window_array(texts.data, texts.starts[rows], texts.ends[rows])
            some = pc.if_else(pa.array(~nulls[rows]), some, pa.scalar(None, some.type))
            made.append(_place_rows(self.events.decode(some, stage, expected, text_columns), rows))
        return _merge(made)

    def _decode_framed(
        self, texts: ByteWindows, places: Ints, stage: Stage, text_columns: frozenset[str], *, ordered: bool = False
    ) -> tuple[DecodedMessages, Ints]:
        """Read CloudEvents whose data is behind all else; and say which of them are none, or nothing that is JSON."""
        if self.attributes is None or self.framed is None:
            raise TypeError("no JSON")
        heads, inner = _cut_data(texts, places)
        around = self.attributes.decode(heads, stage)
        found = _join(around, self.framed.decode(inner, stage, None, text_columns), stage)
        if ordered:
            return found, np.zeros(0, np.int64)
        told = np.concatenate([np.zeros(0, np.int64), *(one.rows for one in around.blocks if _tells_cloud_event(one))])
        faulty = np.array([fault.row for fault in found.faults], np.int64)
        odd = np.union1d(faulty, np.setdiff1d(np.arange(len(texts)), told)).tolist()
        if not odd:
            return found, np.zeros(0, np.int64)
        # Others than Debezium's converter may write what is around data behind it too, or end with a newline.
        moved = {row: _put_data_last(texts.text(row)) for row in odd}
        again = {row: text for row, text in moved.items() if text is not None}
        kept = _drop_rows(found, odd)
        if again:
            lines, nulls = byte_windows(pa.array(list(again.values()), pa.binary()))
            read, _ = self._decode_framed(lines, _sort_kinds(lines, nulls).places, stage, text_columns, ordered=True)
            kept = _merge([kept, _place_rows(read, np.array(list(again), np.int64))])
        return kept, np.array([row for row in odd if row not in again], np.int64)

    def _decode_encoded(self, block: MessageBlock, stage: Stage, text_columns: frozenset[str]) -> DecodedMessages:
        if self.encoded is None:
            faults = tuple(RecordError(int(row), stage, _UNREADABLE) for row in block.rows)
            return DecodedMessages((), np.zeros(0, np.int64), faults)
        columns = dict(_columns(block))
        data = columns.pop("data")
        if pa.types.is_string(data.type):
            data = base64_to_binary(data)[0]
        fields = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
        own = evolve(block, rows=np.arange(len(block.rows)), fields=fields)
        around = DecodedMessages((own,), np.zeros(0, np.int64), ())
        return _place_rows(_join(around, self.encoded.decode(data, stage, None, text_columns), stage), block.rows)


def _shows_cloud_events(texts: ByteWindows) -> bool:
    rows = np.unique(np.linspace(0, max(len(texts) - 1, 0), min(_SAMPLE, len(texts))).astype(np.int64))
    return any(map(_looks_like_cloud_event, map(texts.text, rows.tolist())))


def _looks_like_cloud_event(text: bytes) -> bool:
    return _MARK in text and _LOOK.search(text) is not None


def _may_hold_cloud_events(found: DecodedMessages, texts: ByteWindows) -> bool:
    """Tell whether messages that were read as they are have some among them, or what could not be read has."""
    if any(CLOUD_EVENT_FIELDS.issubset(block.fields.type.names) for block in found.blocks):
        return True
    return any(_looks_like_cloud_event(texts.text(fault.row)) for fault in found.faults)


def _sort_kinds(texts: ByteWindows, nulls: Mask) -> _Kinds:
    whole = window_array(texts.data, texts.starts, texts.ends)
    cloud = texts.contains(_MARK) & ~nulls
    cloud[cloud] = np.asarray(pc.match_substring_regex(whole.filter(pa.array(cloud)), _OWN))
    # As Debezium's converter writes them. Others may order attributes otherwise, and rows hold such texts somewhere.
    sure = np.zeros(len(texts), np.bool_)
    sure[cloud] = np.asarray(pc.match_substring_regex(whole.filter(pa.array(cloud)), _HEAD))
    for row in np.flatnonzero(cloud & ~sure).tolist():
        cloud[row] = _parse_cloud_event(texts.text(row)) is not None
    own = whole.filter(pa.array(cloud))
    places = np.full(len(texts), -1, np.int64)
    places[cloud] = np.asarray(pc.find_substring_regex(own, _DATA), np.int64)
    encoded = np.zeros(len(texts), np.bool_)
    encoded[cloud] = np.asarray(pc.match_substring_regex(own, _ENCODED))
    framed = places >= 0
    masks = (framed, encoded & ~framed, cloud & ~encoded & ~framed, ~cloud)
    return _Kinds(places, *map(np.flatnonzero, masks))


def _cut_data(texts: ByteWindows, places: Ints) -> tuple[pa.Array, pa.Array]:
    """What is before data, closed, and data itself, which ends where its message does."""
    starts = texts.starts + places
    heads = pc.replace_substring_regex(window_array(texts.data, texts.starts, starts), r",\s*$", "}")
    brace = pc.find_substring(window_array(texts.data, starts, texts.ends), "{")
    starts = starts + np.asarray(brace, np.int64)
    return heads, window_array(texts.data, starts, texts.ends - (texts.last() == ord("}")))


def _parse_cloud_event(text: bytes) -> dict[str, Any] | None:
    """The event; None for a message that is none, or no JSON."""
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and is_cloud_document(event) else None


def _put_data_last(text: bytes) -> bytes | None:
    """The event with its data behind all else; None for a message that is none with a schema beside its data."""
    event = _parse_cloud_event(text)
    data = None if event is None else event.pop("data")
    if event is None or not isinstance(data, dict) or not is_framed(data):
        return None
    try:
        return orjson.dumps({**event, "data": data})
    except orjson.JSONEncodeError:
        return None


def _tells_cloud_event(around: MessageBlock) -> bool:
    """True for what is around the data of CloudEvents."""
    return {*around.fields.type.names, "data"} >= CLOUD_EVENT_FIELDS and is_sent_by_debezium(around)


def _holds_encoded(block: MessageBlock) -> bool:
    """True for events whose data is Avro, as text in JSON."""
    kind = block.fields.type
    if not _AVRO.issubset(kind.names):
        return False
    data, content = (kind.field(name).type for name in ("data", "datacontenttype"))
    if not (pa.types.is_string(data) or pa.types.is_binary(data)):
        return False
    if not (pa.types.is_string(content) and is_sent_by_debezium(block)):
        return False
    told = pc.equal(block.fields.field("datacontenttype"), "application/avro")
    return pc.all(told.fill_null(False)).as_py() is True


def _join(around: DecodedMessages, data: DecodedMessages, stage: Stage) -> DecodedMessages:
    """The events whose attributes and data could both be read; both are of the same messages."""
    blocks = tuple(_attach_data(around.blocks, data.blocks))
    bare = (RecordError(int(row), stage, "CloudEvent without data") for row in data.tombstones)
    faults = {fault.row: fault for fault in (*bare, *data.faults, *around.faults)}
    return DecodedMessages(blocks, np.zeros(0, np.int64), _sort(faults.values()))


def _attach_data(around: Iterable[MessageBlock], data: Sequence[MessageBlock]) -> Iterator[MessageBlock]:
    for one, other in product(around, data):
        rows, at, place = np.intersect1d(one.rows, other.rows, assume_unique=True, return_indices=True)
        if len(rows):
            columns = {name: column.take(pa.array(at)) for name, column in _columns(one)}
            columns["data"] = other.fields.take(pa.array(place))
            fields = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
            optional = {f"data.{path}": flag for path, flag in other.optional.items()}
            documents, numbers = (
                frozenset(f"data.{path}" for path in told) for told in (other.documents, other.numbers)
            )
            yield evolve(other, rows=rows, fields=fields, optional=optional, documents=documents, numbers=numbers)


def _columns(block: MessageBlock) -> Iterator[tuple[str, pa.Array]]:
    return zip(block.fields.type.names, children(block.fields), strict=True)


def _drop_rows(found: DecodedMessages, rows: Sequence[int]) -> DecodedMessages:
    """What was found of other messages than these."""
    blocks = [block.filter(~np.isin(block.rows, rows)) for block in found.blocks]
    faults = tuple(fault for fault in found.faults if fault.row not in rows)
    return DecodedMessages(tuple(block for block in blocks if len(block.rows)), found.tombstones, faults)


def _place_rows(found: DecodedMessages, rows: Ints) -> DecodedMessages:
    """What was found of the messages at `rows`, by their places in the whole input."""
    blocks = tuple(evolve(block, rows=rows[block.rows]) for block in found.blocks)
    faults = tuple(evolve(fault, row=int(rows[fault.row])) for fault in found.faults)
    return DecodedMessages(blocks, rows[found.tombstones], faults)


def _merge(parts: Sequence[DecodedMessages]) -> DecodedMessages:
    blocks = tuple(block for part in parts for block in part.blocks)
    tombstones = np.sort(np.concatenate([part.tombstones for part in parts]))
    return DecodedMessages(blocks, tombstones, _sort(fault for part in parts for fault in part.faults))


def _sort(faults: Iterable[RecordError]) -> tuple[RecordError, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.row))
