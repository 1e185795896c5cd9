"""MongoDB's extended JSON -> plain JSON, one document at a time: what its types are where a table has no such types.

Both versions are read: v1 strict, canonical and relaxed v2 (Debezium's `json.serialization.mode`). Whole numbers and
doubles become numbers, object ids their digits, dates ISO 8601 text, decimals their digits as text, binaries base64
text (a UUID its text), undefined null. Nothing that a value says is lost but its type.
Sources: MongoDB's manual, "Extended JSON"; Debezium's MongoDB page, "Change event keys".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OBJECT_ID = re.compile(r"[0-9a-f]{24}")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z")
_UUID_TYPES, _UUID_BYTES = ("03", "04", 3, 4), 16
Document = dict[str, Any]


def _read_integer(value: object) -> int:
    return int(str(value))


def _read_double(value: object) -> float | str:
    number = float(str(value))
    return number if number - number == 0 else str(value)


def _read_date(value: object) -> str:
    """Milliseconds, a number or in words, or ISO text -> ISO text in UTC; years beyond 9999 stay numbers."""
    if isinstance(value, Mapping):
        value = value.get("$numberLong")
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        return _format_date(datetime.fromisoformat(value)) if _is_date(value) else value
    ms = int(str(value))
    try:
        return _format_date(_EPOCH + timedelta(milliseconds=ms))
    except OverflowError:
        return str(ms)


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


def _format_date(date: datetime) -> str:
    """Always with milliseconds, which MongoDB leaves out of whole seconds in relaxed v2, but not in other forms."""
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_binary(value: object, kind: object = None) -> str:
    if isinstance(value, dict):
        kind, value = value.get("subType"), value.get("base64")
    if kind in _UUID_TYPES:
        raw = base64.b64decode(str(value))
        if len(raw) == _UUID_BYTES:
            return str(UUID(bytes=raw))
    return str(value)


def _read_expression(value: object) -> str:
    told = dict(value) if isinstance(value, Mapping) else {}
    return f"/{told.get('pattern', '')}/{told.get('options', '')}"


_WRAPPERS: Mapping[frozenset[str], Callable[[Document], Any]] = {
    frozenset({"$oid"}): lambda d: str(d["$oid"]),
    frozenset({"$numberLong"}): lambda d: _read_integer(d["$numberLong"]),
    frozenset({"$numberInt"}): lambda d: _read_integer(d["$numberInt"]),
    frozenset({"$numberDouble"}): lambda d: _read_double(d["$numberDouble"]),
    frozenset({"$numberDecimal"}): lambda d: str(d["$numberDecimal"]),
    frozenset({"$date"}): lambda d: _read_date(d["$date"]),
    frozenset({"$binary"}): lambda d: _read_binary(d["$binary"]),
    frozenset({"$binary", "$type"}): lambda d: _read_binary(d["$binary"], d["$type"]),
    frozenset({"$uuid"}): lambda d: str(d["$uuid"]),
    frozenset({"$timestamp"}): lambda d: d["$timestamp"],
    frozenset({"$regularExpression"}): lambda d: _read_expression(d["$regularExpression"]),
    frozenset({"$regex", "$options"}): lambda d: f"/{d['$regex']}/{d['$options']}",
    frozenset({"$symbol"}): lambda d: str(d["$symbol"]),
    frozenset({"$code"}): lambda d: str(d["$code"]),
    frozenset({"$undefined"}): lambda _: None,
    frozenset({"$minKey"}): lambda _: "MinKey",
    frozenset({"$maxKey"}): lambda _: "MaxKey",
}
"""The members of an object that stands for a value -> that value."""


def read_plain(value: Any) -> Any:
    """A value of extended JSON as plain JSON; objects that only look like a typed value stay what they are.

    Raises RecursionError for values that nest too deep.
    """
    if isinstance(value, list):
        return [read_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    rule = _WRAPPERS.get(frozenset(value)) if len(value) <= 2 else None  # noqa: PLR2004
    if rule is not None:
        try:
            return rule(value)
        except (ValueError, TypeError, KeyError):
            pass
    return {name: read_plain(item) for name, item in value.items()}


def is_date(value: Any) -> bool:
    """True for a date of extended JSON."""
    return isinstance(value, dict) and value.keys() == {"$date"}


def format_id(value: Any) -> str:
    """The text of an `_id`, another one for each: an object id is its digits, a text itself where it cannot be taken
    for another kind of id (else in quotes), anything else its extended JSON.

    value: parsed extended JSON, as in a record's key or in a document.
    """
    if isinstance(value, str):
        return value if _is_plain_text(value) else orjson.dumps(value).decode()
    if isinstance(value, dict) and value.keys() == {"$oid"} and _OBJECT_ID.fullmatch(str(value["$oid"])):
        return str(value["$oid"])
    if isinstance(value, dict) and len(value) == 1 and value.keys() <= {"$numberLong", "$numberInt"}:
        return str(next(iter(value.values())))
    return orjson.dumps(value).decode()


def _is_plain_text(text: str) -> bool:
    if _OBJECT_ID.fullmatch(text):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return True
    return False


def parse_id(text: str) -> str:
    """The `id` of a record's key -> the text of the `_id`; a key that is no JSON is a text itself."""
    try:
        return format_id(orjson.loads(text))
    except ValueError:
        return format_id(text)
