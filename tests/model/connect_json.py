"""bytes -> Python values: Connect JSON read the slow and obvious way, one record at a time.

With a schema block a value gets the type that the block names; without one it keeps its wire form
(base64 text, whole numbers, ISO text). Semantic types: Debezium's documentation, io.debezium.time.* and
org.apache.kafka.connect.data.*.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

EXACT = Context(prec=200)
EPOCH = datetime(1970, 1, 1)
Schema = Mapping[str, Any]


def decode(data: bytes | None) -> tuple[Any, bool]:
    """(payload, typed): typed tells that a schema block was there.

    Null bytes and the four bytes `null` give None.
    """
    if data is None:
        return None, False
    document = json.loads(data)
    if isinstance(document, dict) and set(document) == {"schema", "payload"}:
        return convert(document["schema"], document["payload"]), True
    return document, False


def convert(schema: Schema | None, value: Any) -> Any:
    """A payload's value as the Python value of its schema."""
    if value is None or schema is None:
        return value
    named = NAMED.get(schema.get("name", ""))
    if named is not None:
        return named(schema, value)
    return PLAIN[schema["type"]](schema, value)


def unscaled(text: str) -> int:
    """Connect's Decimal on the wire: big-endian two's complement in base64."""
    return int.from_bytes(base64.b64decode(text), "big", signed=True)


def decimal(number: int, scale: int) -> Decimal:
    """number * 10^-scale, exact."""
    return Decimal(number).scaleb(-scale, EXACT)


def instant(text: str) -> datetime:
    """ISO text with a zone, as an instant in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def micros(number: int) -> datetime:
    """Microseconds since 1970 as a timestamp without zone."""
    return EPOCH + timedelta(microseconds=number)


def day(number: int) -> date:
    """Days since 1970 as a date."""
    return (EPOCH + timedelta(days=number)).date()


def _struct(schema: Schema, value: Any) -> dict[str, Any]:
    return {f["field"]: convert(f, value.get(f["field"])) for f in schema["fields"]}


def _array(schema: Schema, value: Any) -> list[Any]:
    return [convert(schema["items"], item) for item in value]


Converter = Callable[[Schema, Any], Any]
PLAIN: dict[str, Converter] = {
    "struct": _struct,
    "array": _array,
    "bytes": lambda _, v: base64.b64decode(v),
    "float": lambda _, v: float(v),
    "double": lambda _, v: float(v),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "boolean", "string"), lambda _, v: v),
}
NAMED: dict[str, Converter] = {
    "org.apache.kafka.connect.data.Decimal": lambda s, v: decimal(unscaled(v), int(s["parameters"]["scale"])),
    "io.debezium.time.Date": lambda _, v: day(v),
    "io.debezium.time.Timestamp": lambda _, v: micros(v * 1000),
    "io.debezium.time.MicroTimestamp": lambda _, v: micros(v),
    "io.debezium.time.ZonedTimestamp": lambda _, v: instant(v),
    "io.debezium.time.Time": lambda _, v: _clock(v * 1000),
    "io.debezium.time.MicroTime": lambda _, v: _clock(v),
}


def _clock(number: int) -> time:
    return (EPOCH + timedelta(microseconds=number)).time()
