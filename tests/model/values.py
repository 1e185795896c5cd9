"""PostgreSQL's value and the table's value -> equal or not: the judge of every sink test.

Three questions: is a value read from Iceberg PostgreSQL's (`is_state`), is it the reference's (`same`),
are two sets of rows equal (`differences`). No tolerance but the ones spelled out here.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from tests.model.connect_json import EPOCH, decimal, instant, unscaled

Row = Mapping[str, Any]
Test = Callable[[Any, Any], bool]


def is_state(kind: str, truth: Any, value: Any, *, typed: bool, scales: Iterable[int] = ()) -> bool:
    """Is `value`, read from a table, PostgreSQL's `truth` of type `kind` (udt name)?

    typed: exact types (a schema block was there); else the wire form: base64 text, whole numbers, ISO text.
    scales: those that a numeric column has had, needed to read its wire form.
    """
    if kind in {"json", "jsonb"}:
        return same_json(truth, value)
    if truth is None or value is None:
        return truth is None and value is None
    if not typed and kind == "numeric" and not isinstance(value, dict):
        return isinstance(value, str) and any(decimal(unscaled(value), s) == truth for s in scales)
    if not typed and kind in {"_numeric", "money"}:
        return _wire_numbers(truth, value, max(scales))
    test = TYPED.get(kind) if typed else WIRE.get(kind, TYPED.get(kind))
    return (test or _text)(truth, value)


def same_json(truth: Any, value: Any) -> bool:
    """Equal as JSON documents; PostgreSQL's JSON null and SQL NULL look alike in the recorded state."""
    document = None if value is None else json.loads(value, parse_float=Decimal)
    return bool(document == truth)


def same(expected: Any, value: Any, *, typed: bool = True) -> bool:
    """Is a value read from a table the reference's, type included?

    Without a schema a column that came with text and numbers may be either: then the JSON text of the value counts.
    """
    if expected is None or value is None:
        return expected is None and value is None
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(partial(same, typed=typed), expected, value))
    if isinstance(expected, float) and isinstance(value, float):
        return same_float(expected, value)
    if type(expected) is type(value):
        return bool(expected == value)
    return not typed and _same_wire(expected, value)


def same_float(left: float, right: float) -> bool:
    """Equal, where NaN equals NaN and the zeros differ."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1, left) == math.copysign(1, right)


def differences(expected: Iterable[Row], found: Iterable[Row], *, typed: bool = True) -> list[str]:
    """What keeps two multisets of rows from being equal; an absent column is a null. Empty when they are equal."""
    rest = list(found)
    out = []
    for row in expected:
        match = next((i for i, r in enumerate(rest) if not row_difference(row, r, typed=typed)), None)
        if match is None:
            out.append(f"missing: {_nearest(row, rest, typed=typed)}")
        else:
            del rest[match]
    return out + [f"not expected: {dict(row)}" for row in rest]


def row_difference(expected: Row, found: Row, *, typed: bool = True) -> dict[str, tuple[Any, Any]]:
    """The columns in which two rows differ: name -> (expected, found)."""
    names = set(expected) | set(found)
    pairs = {n: (expected.get(n), found.get(n)) for n in sorted(names)}
    return {n: (e, f) for n, (e, f) in pairs.items() if not same(e, f, typed=typed)}


def _nearest(row: Row, others: list[Row], *, typed: bool) -> str:
    if not others:
        return f"{dict(row)} (no row left)"
    best = min((row_difference(row, other, typed=typed) for other in others), key=len)
    return f"{dict(row)}; the nearest row differs (expected, found) in {best}"


def _same_wire(expected: Any, value: Any) -> bool:
    if isinstance(value, float):
        return same_float(float(expected), value) if isinstance(expected, int | float | str) else False
    return isinstance(value, str) and isinstance(expected, int | float) and _parsed(value) == expected


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _text(truth: Any, value: Any) -> bool:
    return isinstance(value, str) and value == str(truth)


def _whole(truth: Any, value: Any) -> bool:
    return type(value) is int and value == truth


def _float(truth: Any, value: Any) -> bool:
    """The wire form of NaN and the infinities is text."""
    return isinstance(value, float | str) and same_float(float(truth), float(value))


def _naive(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _micros(delta: timedelta) -> int:
    return delta // timedelta(microseconds=1)


# PostgreSQL's words for what ISO 8601 and Python have no room for, and what Debezium 3.7 sends for them.
BEYOND = {"infinity": 2146033979, "0044-03-15 BC": -735160, "0044-03-15T12:00:00 BC": -63517780800000000}
DAYS_END = (86_400_000_000, 86_400_000)
# Debezium counts intervals in microseconds by default.
INTERVALS = {"-1 days": -86_400_000_000}


def _in_words(truth: str, value: Any) -> bool:
    """Is a text column's ISO text PostgreSQL's value? Years before Christ count from 0 there."""
    if not isinstance(value, str):
        return False
    if truth in {"infinity", "-infinity", "24:00:00"}:
        return value == truth
    if not truth.endswith(" BC"):
        return value.rstrip("Z").removesuffix(".000000") == truth.removesuffix("+00:00")
    year, rest = truth.removesuffix(" BC").removesuffix("+00:00").split("-", 1)
    return value.rstrip("Z").removesuffix(".000000") == f"-{int(year) - 1:04d}-{rest}"


def _wire_timestamp(truth: str, value: Any) -> bool:
    """Microseconds; milliseconds for columns of up to three digits, which is told by the size of the number."""
    if truth == "infinity":
        return bool(value == 2**63 - 1)
    micros = BEYOND[truth] if truth in BEYOND else _micros(_naive(truth) - EPOCH)
    return _whole(micros, value) or (micros % 1000 == 0 and _whole(micros // 1000, value))


def _whole_clock(truth: str, value: Any) -> bool:
    micros = _clock_micros(truth)
    return _whole(micros, value) or (micros % 1000 == 0 and _whole(micros // 1000, value))


def _number(truth: Any, value: Any) -> bool:
    """A decimal, or the digits of a number whose scale differs per row: as text, or as the struct on the wire."""
    if isinstance(value, dict):
        return decimal(unscaled(value["value"]), value["scale"]) == truth
    return isinstance(value, Decimal | str) and Decimal(value) == truth


def _wire_numbers(truth: Any, value: Any, scale: int) -> bool:
    if isinstance(truth, str):
        return isinstance(value, str) and decimal(unscaled(value), scale) == _money(truth)
    return [None if v is None else decimal(unscaled(v), scale) for v in value] == truth


def _money(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))


def _single(number: float) -> float:
    """The number as a float of four bytes holds it."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _clock_of_zone(text: str) -> int:
    """Microseconds of the day in UTC: Debezium sends a time with zone in UTC, and which day that was is lost."""
    moment = time.fromisoformat(text)
    shift = _micros(moment.utcoffset() or timedelta())
    return (_clock_micros(moment.replace(tzinfo=None).isoformat()) - shift) % 86_400_000_000


def _bits(truth: str, value: Any) -> bool:
    """Bits come as bytes, the least significant first."""
    data = base64.b64decode(value) if isinstance(value, str) else value
    return isinstance(data, bytes) and format(int.from_bytes(data, "little"), f"0{len(truth)}b") == truth


def _clock_micros(text: str) -> int:
    return _micros(datetime.combine(EPOCH, time.fromisoformat(text)) - EPOCH)


TYPED: dict[str, Test] = {
    "int2": _whole,
    "int4": _whole,
    "int8": _whole,
    "bool": lambda t, v: isinstance(v, bool) and v == t,
    "float8": lambda t, v: isinstance(v, float) and _float(t, v),
    "float4": lambda t, v: isinstance(v, float | str) and same_float(_single(float(t)), _single(float(v))),
    "numeric": _number,
    "money": lambda t, v: isinstance(v, Decimal) and v == _money(t),
    "timestamptz": lambda t, v: (
        _in_words(t, v) or (isinstance(v, datetime) and v.tzinfo is not None and v == instant(t))
    ),
    "timestamp": lambda t, v: _in_words(t, v) or (isinstance(v, datetime) and v.tzinfo is None and v == _naive(t)),
    "date": lambda t, v: _in_words(t, v) or (type(v) is date and v == date.fromisoformat(t)),
    "time": lambda t, v: _in_words(t, v) or (isinstance(v, time) and v == time.fromisoformat(t)),
    "timetz": lambda t, v: isinstance(v, str) and _clock_of_zone(v) == _clock_of_zone(t),
    "interval": lambda t, v: type(v) is int and v == INTERVALS[t],
    "bit": lambda t, v: v is (t == "1") if len(t) == 1 else _bits(t, v),
    "varbit": _bits,
    "hstore": lambda t, v: isinstance(v, str) and json.loads(v) == t,
    "point": lambda t, v: t == f"({v['x']},{v['y']})" and v["wkb"] is not None,
    "xml": lambda t, v: v == t,
    "_int4": lambda t, v: v == t,
    "_bool": lambda t, v: v == t,
    "_uuid": lambda t, v: [str(item) for item in v] == t,
    "_numeric": lambda t, v: all(i is None or isinstance(i, Decimal) for i in v) and v == t,
    "_date": lambda t, v: [None if i is None else i.isoformat() for i in v] == t,
    "_timestamptz": lambda t, v: [i if isinstance(i, datetime) else instant(i) for i in v] == [instant(i) for i in t],
    "bytea": lambda t, v: isinstance(v, bytes) and v == bytes.fromhex(t[2:]),
    "_text": lambda t, v: isinstance(v, list) and v == t,
}
WIRE: dict[str, Test] = {
    "_date": lambda t, v: [None if i is None else (EPOCH + timedelta(i)).date().isoformat() for i in v] == t,
    "float8": _float,
    "timestamptz": lambda t, v: isinstance(v, str) and (_in_words(t, v) or instant(v) == instant(t)),
    "timestamp": _wire_timestamp,
    "date": lambda t, v: v == BEYOND[t] if t in BEYOND else _whole((_naive(t) - EPOCH).days, v),
    "time": lambda t, v: v in DAYS_END if t == "24:00:00" else _whole_clock(t, v),
    "bytea": lambda t, v: isinstance(v, str) and base64.b64decode(v) == bytes.fromhex(t[2:]),
}
