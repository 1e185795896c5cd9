"""CloudEvents' bytes -> blocks whose `data` is read by a format of its own: JSON with its schema beside it, or Avro.

Source: Debezium's CloudEventsConverter, `json.schemas.enable` and `data.serializer.type`. Attributes never have a
schema in JSON, so both are read apart and put together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, evolve, field

from serde.arrays import Ints, Mask, children
from serde.byte_windows import ByteWindows, byte_windows, window_array
from serde.connect.values.binary_values import base64_to_binary
from serde.events.cloudevents import CLOUD_EVENT_FIELDS
from serde.faults import RecordError, Stage
from serde.messages import DecodedMessages, MessageBlock
from serde.wire_format import Deserializer

_MARK = '"specversion"'
_DATA = r'"data"\s*:\s*\{\s*"schema"\s*:\s*\{'
_LOOK = re.compile(_DATA.encode())
_SAMPLE = 16
_AVRO = CLOUD_EVENT_FIELDS | {"id", "source", "type", "datacontenttype", "dataschema"}
_UNREADABLE = "CloudEvent whose data is Avro: set value.converter.data.serializer.type and the URL of its registry"


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
    _split: bool = field(default=False, init=False)

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
        texts, nulls = byte_windows(data)
        cuts = self._find_data(texts, nulls)
        if cuts is None:
            found = self.events.decode(data, stage, expected, text_columns)
        else:
            found = self._decode_apart(texts, nulls, cuts, stage, expected, text_columns)
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

    def _find_data(self, texts: ByteWindows, nulls: Mask) -> Ints | None:
        """Where data begins that has its schema beside it, -1 in other messages; None: there is no such data.

        A few messages are looked at until one of them is such an event, from then on all.
        """
        if self.framed is None or not (self._split or _shows_framed_data(texts)):
            return None
        self._split = True
        whole = window_array(texts.data, texts.starts, texts.ends)
        places: Ints = pc.find_substring_regex(whole, _DATA).to_numpy(zero_copy_only=False).astype(np.int64)
        told = places >= 0
        told[told] = texts.pick(told).contains(_MARK.encode())
        places[~told | nulls] = -1
        return places if (places >= 0).any() else None

    def _decode_apart(
        self,
        texts: ByteWindows,
        nulls: Mask,
        places: Ints,
        stage: Stage,
        expected: pa.StructType | None,
        text_columns: frozenset[str],
    ) -> DecodedMessages:
        own, rest = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        made = [_place_rows(self._decode_framed(texts.pick(own), places[own], stage, text_columns), own)]
        if len(rest):
            others = window_array(texts.data, texts.starts[rest], texts.ends[rest])
            others = pc.if_else(pa.array(~nulls[rest]), others, pa.scalar(None, others.type))
            made.append(_place_rows(self.events.decode(others, stage, expected, text_columns), rest))
        return _merge(made)

    def _decode_framed(
        self, texts: ByteWindows, places: Ints, stage: Stage, text_columns: frozenset[str], *, ordered: bool = False
    ) -> DecodedMessages:
        if self.attributes is None or self.framed is None:
            raise TypeError("no JSON")
        heads, inner = _cut_data(texts, places)
        around = self.attributes.decode(heads, stage)
        found = _join(around, self.framed.decode(inner, stage, None, text_columns), stage)
        odd = [] if ordered else [fault.row for fault in found.faults if not _is_json(inner[fault.row].as_py())]
        if not odd:
            return found
        # Others than Debezium's converter may write what is around data behind it too, or end with a newline.
        again = {row: text for row in odd if (text := _put_data_last(texts.text(row))) is not None}
        moved, nulls = byte_windows(pa.array(list(again.values()), pa.binary()))
        cuts = self._find_data(moved, nulls)
        if cuts is None or (cuts < 0).any():
            return found
        read = self._decode_framed(moved, cuts, stage, text_columns, ordered=True)
        kept = evolve(found, faults=tuple(fault for fault in found.faults if fault.row not in again))
        return _merge([kept, _place_rows(read, np.array(list(again), np.int64))])

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


def _shows_framed_data(texts: ByteWindows) -> bool:
    rows = np.unique(np.linspace(0, max(len(texts) - 1, 0), min(_SAMPLE, len(texts))).astype(np.int64))
    return any(_MARK.encode() in text and _LOOK.search(text) for text in map(texts.text, rows.tolist()))


def _cut_data(texts: ByteWindows, places: Ints) -> tuple[pa.Array, pa.Array]:
    """What is before data, closed, and data itself, which ends where its message does."""
    starts = texts.starts + places
    heads = pc.replace_substring_regex(window_array(texts.data, texts.starts, starts), r",\s*$", "}")
    brace = pc.find_substring(window_array(texts.data, starts, texts.ends), "{")
    starts = starts + np.asarray(brace, np.int64)
    return heads, window_array(texts.data, starts, texts.ends - (texts.last() == ord("}")))


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _put_data_last(text: bytes) -> bytes | None:
    """The message with its data behind all else; None for one that is no JSON."""
    try:
        event = orjson.loads(text)
        data = event.pop("data")
        return orjson.dumps({**event, "data": data})
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None


def _holds_encoded(block: MessageBlock) -> bool:
    """True for events whose data is Avro, as text in JSON."""
    kind = block.fields.type
    if not _AVRO.issubset(kind.names):
        return False
    data, source, content = (kind.field(name).type for name in ("data", "source", "datacontenttype"))
    if not (pa.types.is_string(data) or pa.types.is_binary(data)):
        return False
    if not (pa.types.is_string(source) and pa.types.is_string(content)):
        return False
    told = pc.and_(
        pc.starts_with(block.fields.field("source"), "/debezium/"),
        pc.equal(block.fields.field("datacontenttype"), "application/avro"),
    )
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
            documents = frozenset(f"data.{path}" for path in other.documents)
            yield evolve(other, rows=rows, fields=fields, optional=optional, documents=documents)


def _columns(block: MessageBlock) -> Iterator[tuple[str, pa.Array]]:
    return zip(block.fields.type.names, children(block.fields), strict=True)


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
