"""Messages of another shape than the table -> blocks of their own, where tables do not follow their events.

Or where a column takes values of every kind, as variants do.

Messages without schema are read by the table's types, and what does not fit is a fault. With `allow-field-addition`
off such a value may still be converted, or be null (`types.lenient_conversion`): so those messages are read again,
without the types of the columns that differ, together with those that differ from the table in the same way: read
beside others, a number could become text, or lose digits. A number with digits that no double has stays a fault there.
Costs nothing for messages that fit; Python looks at each of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import column_at
from serde.events.kinds.cloudevents import is_cloud_document, is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope
from serde.events.kinds.sourceless import is_sourceless_document
from serde.faults import RecordError, Unfit
from serde.json.row_reader import parse_message
from serde.messages import DecodedMessages, MessageBlock
from serde.wire_format import Deserializer

TypeDifferences = frozenset[tuple[str, str]]
ExpectedType = Callable[[str], pa.DataType | None]
"""A field's name -> the type of its column, None where that has none or takes any kind."""

_JSON_KINDS = {str: "text", int: "whole", float: "real", bool: "flag", dict: "object", list: "list"}
_BOOLEAN_PATTERN = "^(true|false)$"
_NUMBER_OR_BOOLEAN_PATTERN = r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false)$"
_INEXACT_KIND = "digits"
"""A number with digits that no double has: read without its column it would be another one."""
_LONG_KIND = "long"
"""A whole number that a double, among which it may be read, does not write with the same digits."""
_WHOLE_KINDS = frozenset({"whole", _LONG_KIND})
_NUMBER_KINDS = frozenset({*_WHOLE_KINDS, "real"})
_MAX_EXACT, _INT64_END = 2**53, 2**63
_IMAGES = frozenset({"before", "after"})
_ROW_PATHS = ("", "after.", "before.")
_UNFIT_REASON = "a number beside texts cannot be read without loss"


def decode_mismatches(
    values: DecodedMessages, data: pa.Array, converter: Deserializer, columns: pa.StructType, *, any_case: bool = False
) -> DecodedMessages:
    """Read messages that do not fit again; what cannot be read even so stays a fault with its first reason.

    any_case: fields go to columns whatever the case of their names.
    """
    expected = _look_up(columns, any_case=any_case)
    blocks, doubtful = _split_ambiguous(values.blocks, expected)
    reasons = {row: RecordError(row, "VALUE_CONVERTER", _UNFIT_REASON) for row in doubtful}
    reasons |= {fault.row: fault for fault in values.faults}
    groups: dict[TypeDifferences, list[int]] = {}
    for row in sorted(reasons):
        groups.setdefault(_find_differences(data[row].as_py(), expected), []).append(row)
    for differences, rows in groups.items():
        if any(kind == _INEXACT_KIND for _, kind in differences):
            continue
        places = np.array(rows, np.int64)
        decoded = converter.decode(data.take(pa.array(places)), "VALUE_CONVERTER", _forget_types(columns, differences))
        for block in decoded.blocks:
            blocks.append(attrs.evolve(block, rows=places[block.rows]))
            for row in places[block.rows].tolist():
                reasons.pop(row, None)
    return DecodedMessages(tuple(blocks), values.tombstones, tuple(reasons[row] for row in sorted(reasons)))


def group_by_shape(data: pa.Array, rows: Iterable[int]) -> list[list[int]]:
    """Return these messages, those together that have the same kinds of values; those that are no objects are left out.

    Read together they do not spoil each other.
    """
    groups: dict[TypeDifferences, list[int]] = {}
    for row in rows:
        try:
            document = parse_message(data[row].as_py() or b"null", exact=True)
        except Unfit:
            continue
        if isinstance(document, dict):
            groups.setdefault(frozenset(_describe_shape(document, "")), []).append(row)
    return list(groups.values())


def _forget_types(columns: pa.StructType, differences: TypeDifferences) -> pa.StructType:
    """Return the columns, those that differ of any kind: the others keep their digits."""
    places = [path.lower().removeprefix("after.").removeprefix("before.") for path, _ in differences]

    def differs(name: str) -> bool:
        return any(place == name or place.startswith((f"{name}.", f"{name}[")) for place in places)

    return pa.struct([field.with_type(pa.null()) if differs(field.name.lower()) else field for field in columns])


def _look_up(columns: pa.StructType, *, any_case: bool = False) -> ExpectedType:
    exact = {field.name: field.type for field in columns if not pa.types.is_null(field.type)}
    if not any_case:
        return exact.get
    folded = {field.name.lower(): exact.get(field.name) for field in columns}
    return lambda name: exact.get(name) or (None if name in columns.names else folded.get(name.lower()))


def _split_ambiguous(blocks: Sequence[MessageBlock], expected: ExpectedType) -> tuple[list[MessageBlock], list[int]]:
    """Take out messages whose text may have been a number or a flag: beside texts they were read as text.

    It matters where JSON has no kind for the column: there a number means something else than its digits, or nothing.
    """
    kept, doubtful = [], list[int]()
    for block in blocks:
        mask = np.zeros(len(block.rows), np.bool_)
        for column, pattern in _find_ambiguous_columns(block, expected) if not block.schema_id else ():
            mask |= np.asarray(pc.match_substring_regex(column, pattern).fill_null(False))
        if not mask.any():
            kept.append(block)
            continue
        doubtful += block.rows[mask].tolist()
        if not mask.all():
            kept.append(block.filter(~mask))
    return kept, doubtful


def _find_ambiguous_columns(block: MessageBlock, expected: ExpectedType) -> Iterator[tuple[pa.StringArray, str]]:
    """Return the text columns that stand for what JSON has no kind for, and what a number or flag looks like."""
    fields = (unwrap_cloud_events(block) if is_cloud_event(block) else block).fields
    around = ("after", "before") if is_envelope(fields.type) else ()
    images = [image for name in around if (image := column_at(fields, name)) is not None]
    for row in (fields, *(image for image in images if pa.types.is_struct(image.type))):
        for field in row.type:
            kind = expected(field.name)
            if kind is None or not pa.types.is_string(field.type):
                continue
            plain = _expected_kinds(kind) != {"text"} or pa.types.is_string(kind)
            if not plain or pa.types.is_decimal(kind):
                pattern = _BOOLEAN_PATTERN if pa.types.is_decimal(kind) else _NUMBER_OR_BOOLEAN_PATTERN
                yield column_at(row, field.name), pattern


def _find_differences(message: bytes | None, expected: ExpectedType) -> TypeDifferences:
    try:
        document = parse_message(message or b"null", exact=True)
    except Unfit:
        return frozenset()
    if not isinstance(document, dict):
        return frozenset()
    is_enveloped = ("op" in document and "source" in document) or is_sourceless_document(document)
    if is_cloud_document(document) and isinstance(document["data"], dict):
        document = document["data"]
        is_enveloped = not _IMAGES.isdisjoint(document)
    if is_enveloped:
        images = {name: document[name] for name in ("before", "after") if isinstance(document.get(name), dict)}
        return frozenset(one for name, image in images.items() for one in _compare_row(image, expected, f"{name}."))
    return frozenset(_compare_row(document, expected, ""))


def _compare_row(row: Mapping[str, Any], expected: ExpectedType, path: str) -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        kind = _json_kind(value)
        if kind is None:
            continue
        column = expected(name)
        if column is None:
            if kind in ("object", "list"):
                yield path + name, kind
                yield from _describe_shape(value, path + name)
            continue
        if kind == _INEXACT_KIND and pa.types.is_floating(column):
            continue
        if kind in (_LONG_KIND, _INEXACT_KIND) and pa.types.is_decimal(column):
            if path not in _ROW_PATHS:  # else it is read by the column's type again
                yield path + name, kind
        elif kind not in _expected_kinds(column):
            yield path + name, kind
            yield from _describe_shape(value, path + name)
        elif isinstance(value, dict):
            inner = column if pa.types.is_struct(column) else pa.struct([])
            yield from _compare_row(value, _look_up(inner), f"{path}{name}.")
        elif isinstance(value, list):
            kinds = {kind for kind in map(_json_kind, value) if kind is not None}
            kinds |= {_INEXACT_KIND} if kinds >= {_LONG_KIND, "real"} else set()
            yield from ((f"{path}{name}[]", kind) for kind in kinds)


def _describe_shape(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Say which kinds a list or object has inside: lists of one shape, read together, do not spoil those of another."""
    if isinstance(value, dict):
        inside = [(f"{path}.{name}", each) for name, each in value.items()]
    else:
        inside = [(f"{path}[]", each) for each in value] if isinstance(value, list) else []
    for place, each in inside:
        kind = _json_kind(each)
        if kind is not None:
            yield place, kind
            yield from _describe_shape(each, place)


def _json_kind(value: object) -> str | None:
    if isinstance(value, Decimal):
        return "real" if Decimal(repr(float(value))) == value else _INEXACT_KIND
    if type(value) is int and abs(value) > _MAX_EXACT:
        within = -_INT64_END <= value < _INT64_END
        if not within or Decimal(repr(float(value))) != value:
            return _LONG_KIND if within else _INEXACT_KIND
    return _JSON_KINDS.get(type(value))


def _expected_kinds(column: pa.DataType) -> frozenset[str]:
    """Return the kinds of values that a column is meant for."""
    types = pa.types
    if types.is_nested(column):
        return frozenset({"list"} if types.is_list(column) else {"object"})
    if types.is_integer(column):
        return _WHOLE_KINDS
    if types.is_floating(column) or types.is_decimal(column):
        return _NUMBER_KINDS
    return frozenset({"flag"} if types.is_boolean(column) else {"text"})
