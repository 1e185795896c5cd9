"""A primitive type + Debezium's modes -> its form on the wire: schema type, semantic name, and how a value is written.

Sources: Debezium 3.7, "Data type mappings" of its relational connectors: `decimal.handling.mode`,
`time.precision.mode`, `binary.handling.mode`. A table's microseconds are what Debezium calls a precision of 6 digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal

from attrs import field, frozen

from serde.emit.name_adjustment import Adjustment
from serde.emit.row_schema import Plain

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."


class How(Enum):
    """What becomes of a value; the engine that holds the values does it."""

    AS_IS = "as it is"
    UNSCALED = "decimal -> its unscaled number, big-endian two's complement"
    TEXT = "number -> plain text"
    DOUBLE = "number -> double"
    BASE64 = "bytes -> base64 text"
    BASE64_URL = "bytes -> base64 text, URL and file name safe"
    HEX = "bytes -> hexadecimal text"
    DAYS = "date -> days since 1970"
    ISO_DATE = "date -> 2017-09-15Z"
    MILLIS_OF_MICROS = "microseconds -> milliseconds"
    NANOS_OF_MICROS = "microseconds -> nanoseconds"
    MICROS_OF_NANOS = "nanoseconds -> microseconds"
    MILLIS_OF_NANOS = "nanoseconds -> milliseconds"
    ISO_TIME = "microseconds of the day -> 04:05:11.789000Z"
    MICROS = "timestamp -> microseconds since 1970"
    MILLIS = "timestamp -> milliseconds since 1970"
    NANOS = "timestamp -> nanoseconds since 1970"
    ISO = "timestamp -> 2019-07-09T02:28:57.123456Z"
    ISO_OF_NANOS = "nanoseconds since 1970 -> 2019-07-09T02:28:57.123456789Z"
    JSON = "variant -> JSON text"


LOSES: Mapping[How, str] = {
    How.DOUBLE: "digits that a double has no room for",
    How.BASE64: "the type: it comes back as text",
    How.BASE64_URL: "the type: it comes back as text",
    How.HEX: "the type: it comes back as text",
    How.MILLIS_OF_MICROS: "microseconds",
    How.MILLIS: "microseconds",
    How.MILLIS_OF_NANOS: "microseconds and nanoseconds",
    How.MICROS_OF_NANOS: "nanoseconds",
    How.NANOS: "nothing from 1677 to 2262; other years have no nanoseconds in 64 bits, and stop the source",
    How.ISO_OF_NANOS: "nothing of whole microseconds; a finer value is a dead letter of the sink",
    How.JSON: "the type: it comes back as text",
}
"""What a way of writing loses on the way from a table, through a schema, into a table of the same types; else nothing.
"""

Decimals = Literal["precise", "double", "string"]
Times = Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
Binaries = Literal["bytes", "base64", "base64-url-safe", "hex"]


@frozen
class Modes:
    """Debezium's handling modes, its defaults; `names` are those of schemas, `fields` those of columns."""

    decimals: Decimals = "precise"
    times: Times = "adaptive"
    binaries: Binaries = "bytes"
    names: Adjustment = "none"
    fields: Adjustment = "none"


@frozen
class Form:
    """A type on the wire: Connect type, semantic name and parameters (None, empty: a bare type), and how to write."""

    type: str
    how: How = How.AS_IS
    name: str | None = None
    parameters: Mapping[str, str] = field(factory=dict)


_ALWAYS: Mapping[str, Form] = {
    "boolean": Form("boolean"),
    "int": Form("int32"),
    "long": Form("int64"),
    "float": Form("float"),
    "double": Form("double"),
    "string": Form("string"),
    "uuid": Form("string", name=_DATA + "Uuid"),
    "variant": Form("string", How.JSON, _DATA + "Json"),
    "timestamptz": Form("string", How.ISO, _TIME + "ZonedTimestamp"),
    "timestamptz_ns": Form("string", How.ISO_OF_NANOS, _TIME + "ZonedTimestamp"),
    # A column of type unknown holds nothing but nulls.
    "unknown": Form("string"),
}

_DATE = Form("int32", How.DAYS, _TIME + "Date")
_MICRO_TIME = Form("int64", name=_TIME + "MicroTime")
_MICRO_TIMESTAMP = Form("int64", How.MICROS, _TIME + "MicroTimestamp")
_ADAPTIVE: Mapping[str, Form] = {
    "date": _DATE,
    "time": _MICRO_TIME,
    "timestamp": _MICRO_TIMESTAMP,
    "timestamp_ns": Form("int64", name=_TIME + "NanoTimestamp"),
}
_TEMPORAL: Mapping[str, Mapping[str, Form]] = {
    "adaptive": _ADAPTIVE,
    "adaptive_time_microseconds": _ADAPTIVE,
    "connect": {
        "date": Form("int32", How.DAYS, _CONNECT + "Date"),
        "time": Form("int32", How.MILLIS_OF_MICROS, _CONNECT + "Time"),
        "timestamp": Form("int64", How.MILLIS, _CONNECT + "Timestamp"),
        "timestamp_ns": Form("int64", How.MILLIS_OF_NANOS, _CONNECT + "Timestamp"),
    },
    "isostring": {
        "date": Form("string", How.ISO_DATE, _TIME + "IsoDate"),
        "time": Form("string", How.ISO_TIME, _TIME + "IsoTime"),
        "timestamp": Form("string", How.ISO, _TIME + "IsoTimestamp"),
        "timestamp_ns": Form("string", How.ISO_OF_NANOS, _TIME + "IsoTimestamp"),
    },
    "microseconds": {
        "date": _DATE,
        "time": _MICRO_TIME,
        "timestamp": _MICRO_TIMESTAMP,
        "timestamp_ns": Form("int64", How.MICROS_OF_NANOS, _TIME + "MicroTimestamp"),
    },
    "nanoseconds": {
        "date": _DATE,
        "time": Form("int64", How.NANOS_OF_MICROS, _TIME + "NanoTime"),
        "timestamp": Form("int64", How.NANOS, _TIME + "NanoTimestamp"),
        "timestamp_ns": Form("int64", name=_TIME + "NanoTimestamp"),
    },
}
_BINARY: Mapping[str, Form] = {
    "bytes": Form("bytes"),
    "base64": Form("string", How.BASE64),
    "base64-url-safe": Form("string", How.BASE64_URL),
    "hex": Form("string", How.HEX),
}


def form(kind: Plain, modes: Modes) -> Form:
    """The form of a primitive type; ValueError for a type that has none (geometry, geography)."""
    made = _ALWAYS.get(kind.name) or _TEMPORAL[modes.times].get(kind.name)
    if made is not None:
        return made
    if kind.name == "decimal":
        return _decimal(kind, modes.decimals)
    if kind.name in {"fixed", "binary"}:
        return _BINARY[modes.binaries]
    raise ValueError(f"no form for type {kind.name}")


def _decimal(kind: Plain, mode: Decimals) -> Form:
    if mode == "string":
        return Form("string", How.TEXT)
    if mode == "double":
        return Form("double", How.DOUBLE)
    parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
    return Form("bytes", How.UNSCALED, _CONNECT + "Decimal", parameters)
