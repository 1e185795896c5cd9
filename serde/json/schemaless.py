"""payloads without schema -> wire rows: guess the type from a few, read all by it, widen it by what would not fit,
again.

The type starts from a sample, what the caller expects, and what was found last time; the reader refuses every field
and kind
outside it, so nothing is overlooked. What a guess cannot settle (kinds that exclude each other) is counted over all
rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from attrs import define, field

from serde.events.cloudevents import MARKS
from serde.faults import Unfit
from serde.json.column_reader import Reader, Reading
from serde.json.json_lines import Texts
from serde.json.row_reader import load
from serde.json.schema_framing import Part
from serde.json.type_inference import Seen, filled

WIRE: Mapping[str, pa.DataType] = {
    "whole number": pa.int64(),
    "other number, and the words NaN and Infinity among numbers": pa.float64(),
    "true, false": pa.bool_(),
    "text": pa.string(),
}
"""What single values are read into where no schema says so."""

_SAMPLE = 64
_ROUNDS = 12
_GIVE_UP = 8
_REMEMBERED = 16
_IMAGES = frozenset({"before", "after"})
_AROUND = frozenset({*_IMAGES, *MARKS, "op", "source", "transaction", "ts_ms", "ts_us", "ts_ns"})
_ATTRIBUTES = frozenset({"id", "type", "time", "subject", "datacontenttype", "dataschema"})
_ORIGIN = dict.fromkeys(("version", "connector", "name", "db", "schema", "table"), pa.string())
_POSITION = dict.fromkeys(("ts_ns", "ts_us", "ts_ms", "lsn"), pa.int64())
_ENVELOPE = {
    "op": pa.string(),
    "source": pa.struct(list({**_ORIGIN, **_POSITION}.items())),
    "transaction": pa.struct([("id", pa.string()), ("total_order", pa.int64())]),
}
"""What surrounds the images: an event with another kind there must not spoil those beside it."""


@define(eq=False)
class Bare:
    """Reads payloads without schema; remembers the types it found to start from them, never to decide by them."""

    found: list[pa.StructType] = field(factory=list)

    def read(
        self, texts: Texts, part: Part, loose: list[int], expected: pa.StructType | None
    ) -> tuple[Reading, pa.StructType]:
        """Wire rows of `part` and their type; `texts` are the whole messages by row, for those read one by one."""
        seen = Seen()
        sample = np.unique(np.linspace(0, max(len(part.rows) - 1, 0), min(_SAMPLE, len(part.rows))).astype(np.int64))
        _look(seen, texts, [*part.rows[sample].tolist(), *loose[:_SAMPLE]])
        if expected is not None:
            _expect(seen, expected)
        known = seen.type()
        hint = next((kind for kind in self.found if covers(kind, known)), None)
        if hint is not None:
            seen.expect(hint, fix=False)
        _look(seen, texts, loose[_SAMPLE:])
        reading, kind = _settle(seen, texts, part)
        self._remember(kind)
        return reading, kind

    def _remember(self, kind: pa.StructType) -> None:
        self.found = [kind, *(old for old in self.found if old != kind)][:_REMEMBERED]


def _expect(seen: Seen, columns: pa.StructType) -> None:
    """The known columns are those of a flattened event, of the images of an envelope."""
    around = _around_images(seen)
    if around is None:
        seen.expect(columns, fix=True)
        return
    for image in _IMAGES & around.fields.keys():
        around.fields[image].expect(columns, fix=True)
    around_images = _AROUND | _ATTRIBUTES if seen.fields.keys() >= MARKS else _AROUND
    for column in columns:
        # Flattened events may stand between envelopes.
        if column.name in seen.fields and column.name not in around_images:
            seen.fields[column.name].expect(column.type, fix=True)


def _around_images(seen: Seen) -> Seen | None:
    """What holds the images of an envelope; None for a flattened event."""
    if {"op", "source"} <= seen.fields.keys():
        return seen if seen.fields.keys() & _IMAGES else None
    if not seen.fields.keys() >= MARKS:
        return None
    data = seen.fields["data"]
    return data.fields["payload"] if "payload" in data.fields and not data.fields.keys() & _IMAGES else data


def _know_envelope(seen: Seen) -> None:
    """Expects of envelopes what all have; makes both images one, rows of one table that give a column one type."""
    around = _around_images(seen)
    if around is None:
        return
    for name, kind in _ENVELOPE.items() if around is seen else ():
        if name in seen.fields:
            seen.fields[name].know(kind)
    images = [around.fields[name] for name in ("after", "before") if name in around.fields]
    for image in images:
        image.know(pa.struct([]))
    if len(images) > 1 and images[0] is not images[1] and all(image.kinds for image in images):
        images[0].absorb(images[1])
        around.fields["before"] = images[0]


def _settle(seen: Seen, texts: Texts, part: Part) -> tuple[Reading, pa.StructType]:
    """Reads and widens until the type holds; what does not fit it then is left to be read one by one."""
    for _ in range(_ROUNDS):
        kind = _struct(seen)
        reading = _read(part.texts, kind, _GIVE_UP)
        if not reading.failed:
            return reading, kind
        clash = _look(seen, texts, _rows(part, reading))
        if not clash and _struct(seen) == kind:
            break
        if clash:
            reading = _read(part.texts, kind, None)
            seen = _recount(seen, texts, part, reading)
            if _struct(seen) == kind:
                return reading, kind
    kind = _struct(seen)
    return _read(part.texts, kind, None), kind


def _rows(part: Part, reading: Reading) -> list[int]:
    """Input rows that failed."""
    return [row for where in reading.failed for row in part.rows[where].tolist()]


def _struct(seen: Seen) -> pa.StructType:
    kind = seen.type()
    return kind if pa.types.is_struct(kind) else pa.struct([])


def _read(texts: Texts, kind: pa.StructType, give_up: int | None) -> Reading:
    if not kind.num_fields or not len(texts):
        return Reading(failed=[np.arange(len(texts))] if len(texts) else [])
    return Reader(texts, filled(kind), True, give_up).read()


def _look(seen: Seen, texts: Texts, rows: list[int]) -> bool:
    """Counts the kinds of these rows; True when a field has kinds that exclude each other and none is expected."""
    for row in rows:
        try:
            seen.look(payload_of(load(texts.text(row))))
        except (Unfit, RecursionError):
            continue
    _know_envelope(seen)
    return _clashes(seen)


def payload_of(document: object) -> object:
    """The payload of {"schema":null,"payload":..}, any other document as it is."""
    if isinstance(document, dict) and document.keys() == {"schema", "payload"} and document["schema"] is None:
        return document["payload"]
    return document


def _clashes(seen: Seen) -> bool:
    if seen.clashes():
        return True
    return any(_clashes(child) for child in seen.fields.values()) or (seen.item is not None and _clashes(seen.item))


def _recount(seen: Seen, texts: Texts, part: Part, reading: Reading) -> Seen:
    """Counts every row once, keeping what was expected: read rows by their columns, the others one by one."""
    fresh = Seen()
    _keep_fixed(seen, fresh)
    for _, array in reading.parts:
        fresh.credit(array)
    _look(fresh, texts, _rows(part, reading))
    return fresh


def _keep_fixed(old: Seen, new: Seen) -> None:
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
