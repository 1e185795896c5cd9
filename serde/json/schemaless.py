"""payloads without schema -> wire rows: guess the type from a few, read all by it, widen it by what would not fit,
again.

The type starts from a sample, what the caller expects, and what was found last time; the reader refuses every field
and kind
outside it, so nothing is overlooked. What a guess cannot settle (kinds that exclude each other) is counted over all
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from serde.byte_windows import ByteWindows
from serde.events.kinds.cloudevents import CLOUD_EVENT_FIELDS, holds_images, is_framed
from serde.events.kinds.sourceless import ENVELOPE_FIELDS, UPDATE_DESCRIPTION, is_sourceless_document
from serde.events.positions.event_times import SOURCE_DATES
from serde.faults import Unfit
from serde.json.columns.column_reader import ReadResult
from serde.json.columns.trailer_reader import TrailerReader
from serde.json.row_reader import parse_message, unwrap_payload
from serde.json.schema_framing import FramePart
from serde.json.type_inference import ObservedTypes, fill_unknown

INFERRED_TYPES: Mapping[str, pa.DataType] = {
    "whole number": pa.int64(),
    "other number, and the words NaN and Infinity among numbers": pa.float64(),
    "true, false": pa.bool_(),
    "text": pa.string(),
}
"""What single values are read into where no schema says so."""

_READ_ALL = TrailerReader()
"""Leaves nothing out: for who counts what there is."""

_SAMPLE, _FEW = 64, 12
"""Messages that show a type; so few show that it is one that was found before."""

_ROUNDS = 12
_GIVE_UP = 8
_REMEMBERED = 16
_CACHED_TYPES = 256
_IMAGES = frozenset({"before", "after"})
_CLOUD_ATTRIBUTES = frozenset({*CLOUD_EVENT_FIELDS, "id", "type", "time", "subject", "datacontenttype", "dataschema"})
_ORIGIN_TYPES = dict.fromkeys(("version", "connector", "name", "db", "schema", "table"), pa.string())
_POSITION_TYPES = dict.fromkeys(("ts_ns", "ts_us", "ts_ms", "lsn"), pa.int64())
_ENVELOPE_TYPES = {
    "op": pa.string(),
    "source": pa.struct(list({**_ORIGIN_TYPES, **_POSITION_TYPES}.items())),
    "transaction": pa.struct([("id", pa.string()), ("total_order", pa.int64())]),
}
"""What surrounds the images: an event with another kind there must not spoil those beside it."""


@frozen(eq=False)
class _Messages:
    """Payloads to be read by columns (`part`) and one by one (`loose`), the whole texts of all by row, and the columns
    that are known, with `any_case` whatever the case of their names.
    """

    texts: ByteWindows
    part: FramePart
    loose: list[int]
    expected: pa.StructType | None
    any_case: bool

    def observe(self, types: ObservedTypes, rows: list[int]) -> bool:
        """Counts the kinds of these rows; True when a field has kinds that exclude each other and none is expected."""
        for row in rows:
            try:
                event = unwrap_payload(parse_message(self.texts.text(row), framed=False))
                types.look(event)
                types.sourceless = types.sourceless or is_sourceless_document(event)
            except (Unfit, RecursionError):
                continue
        _expect_envelope(types)
        if self.expected is not None:
            # Also of envelopes among flattened events, which no row before these showed, and the other way round.
            _expect_columns(types, self.expected, any_case=self.any_case)
        return _has_clashes(types)

    def find_failed(self, reading: ReadResult) -> list[int]:
        """Input rows that failed."""
        return [row for where in reading.failed for row in self.part.rows[where].tolist()]

    def recount(self, types: ObservedTypes, reading: ReadResult) -> ObservedTypes:
        """Counts every row once, keeping what was expected: read rows by their columns, the others one by one."""
        fresh = ObservedTypes(sourceless=types.sourceless)
        _keep_fixed(types, fresh)
        for _, array in reading.parts:
            fresh.count_column(array)
        self.observe(fresh, [*self.find_failed(reading), *self.loose])
        return fresh


@define(eq=False)
class SchemalessReader:
    """Reads payloads without schema; remembers the types it found to start from them, never to decide by them."""

    trailers: TrailerReader = field(factory=TrailerReader)
    any_case: bool = False
    found: list[pa.StructType] = field(factory=list)

    def read(
        self, texts: ByteWindows, part: FramePart, loose: list[int], expected: pa.StructType | None
    ) -> tuple[ReadResult, pa.StructType]:
        """Wire rows of `part` and their type; `texts` are the whole messages by row, for those read one by one."""
        messages = _Messages(texts, part, loose, expected, self.any_case)
        types, hint = self._start(messages, _FEW) if self.found else (ObservedTypes(), None)
        if hint is None:
            types, hint = self._start(messages, _SAMPLE)
        if hint is not None:
            types.expect(hint, fix=False)
        messages.observe(types, loose[_SAMPLE:])
        reading, kind = _read_widening(types, messages, self.trailers)
        self._remember(kind)
        return reading, kind

    def _start(self, messages: _Messages, count: int) -> tuple[ObservedTypes, pa.StructType | None]:
        """What so many of the messages show, and the type found before that has all of it."""
        types, rows = ObservedTypes(), messages.part.rows
        sample = np.unique(np.linspace(0, max(len(rows) - 1, 0), min(count, len(rows))).astype(np.int64))
        messages.observe(types, [*rows[sample].tolist(), *messages.loose[:_SAMPLE]])
        known = types.type(met=True)
        return types, next((kind for kind in self.found if covers(kind, known)), None)

    def _remember(self, kind: pa.StructType) -> None:
        self.found = [kind, *(old for old in self.found if old != kind)][:_REMEMBERED]


def _expect_columns(types: ObservedTypes, columns: pa.StructType, *, any_case: bool) -> None:
    """The known columns are those of a flattened event, of the images of an envelope."""
    around = _find_envelope(types)
    if around is None:
        types.expect(_name_as_met(columns, types, any_case=any_case), fix=True)
        return
    images = _IMAGES & around.fields.keys()
    for image in () if _holds_documents(types, around) else images:
        row = around.fields[image]
        row.expect(_name_as_met(columns, row, any_case=any_case), fix=True)
    if not images:
        around.expect(columns, fix=True)
    around_images = ENVELOPE_FIELDS if "op" in types.fields else ENVELOPE_FIELDS | _CLOUD_ATTRIBUTES
    for column in _name_as_met(columns, types, any_case=any_case):
        # Flattened events may stand between envelopes.
        if column.name in types.fields and column.name not in around_images:
            types.fields[column.name].expect(column.type, fix=True)


def _name_as_met(columns: pa.StructType, types: ObservedTypes, *, any_case: bool) -> pa.StructType:
    """The columns, and under their own names the fields that differ from them in case only, whose values go there."""
    if not any_case:
        return columns
    exact, folded = set(columns.names), {column.name.lower(): column for column in columns}
    others = [name for name in types.fields if name not in exact and name.lower() in folded]
    return pa.struct([*columns, *(folded[name.lower()].with_name(name) for name in others)]) if others else columns


def _find_envelope(types: ObservedTypes) -> ObservedTypes | None:
    """What holds the images of an envelope; None for a flattened event."""
    if types.sourceless:
        return types
    if {"op", "source"} <= types.fields.keys():
        # A row may have columns of these names, but a source with members envelopes alone.
        return types if types.fields.keys() & _IMAGES and types.fields["source"].kinds["object"] else None
    if not types.fields.keys() >= CLOUD_EVENT_FIELDS:
        return None
    data = types.fields["data"]
    data = data.fields["payload"] if is_framed(data.fields) else data
    return data if holds_images(types.fields, data.fields) else None


def _holds_documents(types: ObservedTypes, around: ObservedTypes) -> bool:
    """True for MongoDB's envelopes, whose images are texts: their source has a collection in place of a table."""
    source = around.fields.get("source")
    names_collection = "iodebeziumcollection" in types.fields if source is None else "collection" in source.fields
    names_collection |= types.sourceless and UPDATE_DESCRIPTION in around.fields
    images = [around.fields[name] for name in _IMAGES if name in around.fields]
    return names_collection and not any(one.kinds["object"] for one in images)


def _expect_envelope(types: ObservedTypes) -> None:
    """Expects of envelopes what all have; makes both images one, rows of one table that give a column one type."""
    around = _find_envelope(types)
    if around is None:
        return
    for name, kind in _ENVELOPE_TYPES.items() if around is types else ():
        if name in types.fields:
            types.fields[name].expect_nested(kind)
    if around is types:
        # Whatever else stands there is no date, also where all events of a block have it.
        for name, date in types.fields["source"].fields.items() if "source" in types.fields else ():
            if name in SOURCE_DATES and date.kinds:
                date.expect(pa.int64(), fix=True)
    images = [around.fields[name] for name in ("after", "before") if name in around.fields]
    images = [] if _holds_documents(types, around) else images
    for image in images:
        image.expect_nested(pa.struct([]))
    if len(images) > 1 and images[0] is not images[1] and all(image.kinds for image in images):
        images[0].merge_counts(images[1])
        around.fields["before"] = images[0]


def _read_widening(
    types: ObservedTypes, messages: _Messages, trailers: TrailerReader
) -> tuple[ReadResult, pa.StructType]:
    """Reads and widens until the type holds; what does not fit it then is left to be read one by one.

    Columns that are only expected cost the reader as much as others, so they are left out as long as nothing has them.
    """
    texts = messages.part.texts
    if (usual := _struct_type(types, met=True)) != _struct_type(types):
        reading = _read_columns(trailers, texts, usual, 1)
        if not reading.failed:
            return reading, usual
    for _ in range(_ROUNDS):
        kind = _struct_type(types)
        reading = _read_columns(trailers, texts, kind, _GIVE_UP)
        if not reading.failed:
            return reading, kind
        clash = messages.observe(types, messages.find_failed(reading))
        if not clash and _struct_type(types) == kind:
            break
        if clash:
            reading = _read_columns(_READ_ALL, texts, kind, None)
            types = messages.recount(types, reading)
            if _struct_type(types) == kind:
                return reading, kind
    kind = _struct_type(types)
    return _read_columns(trailers, texts, kind, None), kind


def _struct_type(types: ObservedTypes, *, met: bool = False) -> pa.StructType:
    kind = types.type(met=met)
    return kind if pa.types.is_struct(kind) else pa.struct([])


def _read_columns(trailers: TrailerReader, texts: ByteWindows, kind: pa.StructType, give_up: int | None) -> ReadResult:
    if not kind.num_fields or not len(texts):
        return ReadResult(failed=[np.arange(len(texts))] if len(texts) else [])
    return trailers.read(texts, _type_to_read_by(kind), strict=True, give_up=give_up)


@lru_cache(maxsize=_CACHED_TYPES)
def _type_to_read_by(kind: pa.StructType) -> pa.DataType:
    return fill_unknown(kind)


def _has_clashes(types: ObservedTypes) -> bool:
    if types.has_clashes():
        return True
    return any(_has_clashes(child) for child in types.fields.values()) or (
        types.item is not None and _has_clashes(types.item)
    )


def _keep_fixed(old: ObservedTypes, new: ObservedTypes) -> None:
    new.fixed, new.numbers = old.fixed, old.numbers
    if old.fixed:
        new.kinds.update(dict.fromkeys(old.kinds, 0))
    for name, child in old.fields.items():
        _keep_fixed(child, new.child(name))
    if old.item is not None:
        _keep_fixed(old.item, new.items())


def covers(kind: pa.DataType, other: pa.DataType) -> bool:
    """True when `kind` has every field of `other` with the same kinds (null and int64 fit in more)."""
    if pa.types.is_null(other) or kind == other:
        return True
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        mine = {child.name: child.type for child in kind}
        return all(child.name in mine and covers(mine[child.name], child.type) for child in other)
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return covers(kind.value_type, other.value_type)
    return bool(kind == pa.float64() and other == pa.int64())
