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
from serde.emit.row_schema import Primitive

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."


class ValueEncoding(Enum):
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
    DATE_PARTS = "date -> its year, month and day"
    TIME_PARTS = "microseconds of the day -> hour, minute, second and nanoseconds"
    PARTS = "timestamp -> the parts of its date and of its time"
    PARTS_OF_NANOS = "nanoseconds since 1970 -> the parts of their date and of their time"


_FINER = (
    "nothing of whole microseconds; a finer value is a dead letter of the sink, unless it is an instant and the table "
    "has the column already"
)
LOSSES: Mapping[ValueEncoding, str] = {
    ValueEncoding.DOUBLE: "digits that a double has no room for",
    ValueEncoding.BASE64: "the type: it comes back as text",
    ValueEncoding.BASE64_URL: "the type: it comes back as text",
    ValueEncoding.HEX: "the type: it comes back as text",
    ValueEncoding.MILLIS_OF_MICROS: "microseconds",
    ValueEncoding.MILLIS: "microseconds",
    ValueEncoding.MILLIS_OF_NANOS: "microseconds and nanoseconds",
    ValueEncoding.MICROS_OF_NANOS: "nanoseconds",
    ValueEncoding.NANOS: "nothing from 1677 to 2262; other years have no nanoseconds in 64 bits, and stop the source",
    ValueEncoding.ISO_OF_NANOS: _FINER,
    ValueEncoding.JSON: "the type: it comes back as text",
    ValueEncoding.PARTS_OF_NANOS: _FINER,
}
"""What a way of writing loses on the way from a table, through a schema, into a table of the same types; else nothing.
"""

DecimalMode = Literal["precise", "double", "string"]
TimeMode = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds", "structured"
]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]


@frozen
class HandlingModes:
    """Debezium's handling modes, its defaults; `names` are those of schemas, `fields` those of columns."""

    decimals: DecimalMode = "precise"
    times: TimeMode = "adaptive"
    binaries: BinaryMode = "bytes"
    names: Adjustment = "none"
    fields: Adjustment = "none"


@frozen
class WireType:
    """A type on the wire: Connect type, semantic name and parameters (None, empty: a bare type), and how to write.

    `members` are the fields of a struct that stands for a value, all of them optional, by name and Connect type.
    """

    type: str
    how: ValueEncoding = ValueEncoding.AS_IS
    name: str | None = None
    parameters: Mapping[str, str] = field(factory=dict)
    members: Mapping[str, str] = field(factory=dict)


_ALWAYS: Mapping[str, WireType] = {
    "boolean": WireType("boolean"),
    "int": WireType("int32"),
    "long": WireType("int64"),
    "float": WireType("float"),
    "double": WireType("double"),
    "string": WireType("string"),
    "uuid": WireType("string", name=_DATA + "Uuid"),
    "variant": WireType("string", ValueEncoding.JSON, _DATA + "Json"),
    "timestamptz": WireType("string", ValueEncoding.ISO, _TIME + "ZonedTimestamp"),
    "timestamptz_ns": WireType("string", ValueEncoding.ISO_OF_NANOS, _TIME + "ZonedTimestamp"),
    # A column of type unknown holds nothing but nulls.
    "unknown": WireType("string"),
}

_DATE_PARTS = {"year": "int32", "month": "int8", "day": "int8"}
_TIME_PARTS = {"hour": "int8", "minute": "int8", "second": "int8", "nanos": "int32"}
_SPECIAL, _PRECISION = {"specialValue": "string"}, {"precision": "int32"}
_PARTS = _DATE_PARTS | _TIME_PARTS | _SPECIAL | _PRECISION
_ZONED_PARTS = _DATE_PARTS | _TIME_PARTS | {"offsetSeconds": "int32", "zoneId": "string"} | _SPECIAL | _PRECISION


def _make_structured(what: str, how: ValueEncoding, members: Mapping[str, str]) -> WireType:
    return WireType("struct", how, f"{_TIME}Structured{what}", members=members)


_DATE = WireType("int32", ValueEncoding.DAYS, _TIME + "Date")
_MICRO_TIME = WireType("int64", name=_TIME + "MicroTime")
_MICRO_TIMESTAMP = WireType("int64", ValueEncoding.MICROS, _TIME + "MicroTimestamp")
_ADAPTIVE: Mapping[str, WireType] = {
    "date": _DATE,
    "time": _MICRO_TIME,
    "timestamp": _MICRO_TIMESTAMP,
    "timestamp_ns": WireType("int64", name=_TIME + "NanoTimestamp"),
}
_TEMPORAL: Mapping[str, Mapping[str, WireType]] = {
    "adaptive": _ADAPTIVE,
    "adaptive_time_microseconds": _ADAPTIVE,
    "connect": {
        "date": WireType("int32", ValueEncoding.DAYS, _CONNECT + "Date"),
        "time": WireType("int32", ValueEncoding.MILLIS_OF_MICROS, _CONNECT + "Time"),
        "timestamp": WireType("int64", ValueEncoding.MILLIS, _CONNECT + "Timestamp"),
        "timestamp_ns": WireType("int64", ValueEncoding.MILLIS_OF_NANOS, _CONNECT + "Timestamp"),
    },
    "isostring": {
        "date": WireType("string", ValueEncoding.ISO_DATE, _TIME + "IsoDate"),
        "time": WireType("string", ValueEncoding.ISO_TIME, _TIME + "IsoTime"),
        "timestamp": WireType("string", ValueEncoding.ISO, _TIME + "IsoTimestamp"),
        "timestamp_ns": WireType("string", ValueEncoding.ISO_OF_NANOS, _TIME + "IsoTimestamp"),
    },
    "microseconds": {
        "date": _DATE,
        "time": _MICRO_TIME,
        "timestamp": _MICRO_TIMESTAMP,
        "timestamp_ns": WireType("int64", ValueEncoding.MICROS_OF_NANOS, _TIME + "MicroTimestamp"),
    },
    "nanoseconds": {
        "date": _DATE,
        "time": WireType("int64", ValueEncoding.NANOS_OF_MICROS, _TIME + "NanoTime"),
        "timestamp": WireType("int64", ValueEncoding.NANOS, _TIME + "NanoTimestamp"),
        "timestamp_ns": WireType("int64", name=_TIME + "NanoTimestamp"),
    },
    "structured": {
        "date": _make_structured("Date", ValueEncoding.DATE_PARTS, _DATE_PARTS | _SPECIAL),
        "time": _make_structured("Time", ValueEncoding.TIME_PARTS, _TIME_PARTS | _PRECISION),
        "timestamp": _make_structured("Timestamp", ValueEncoding.PARTS, _PARTS),
        "timestamp_ns": _make_structured("Timestamp", ValueEncoding.PARTS_OF_NANOS, _PARTS),
        "timestamptz": _make_structured("ZonedTimestamp", ValueEncoding.PARTS, _ZONED_PARTS),
        "timestamptz_ns": _make_structured("ZonedTimestamp", ValueEncoding.PARTS_OF_NANOS, _ZONED_PARTS),
    },
}
_BINARY: Mapping[str, WireType] = {
    "bytes": WireType("bytes"),
    "base64": WireType("string", ValueEncoding.BASE64),
    "base64-url-safe": WireType("string", ValueEncoding.BASE64_URL),
    "hex": WireType("string", ValueEncoding.HEX),
}


def wire_type(kind: Primitive, modes: HandlingModes) -> WireType:
    """The form of a primitive type; ValueError for a type that has none (geometry, geography)."""
    mapped = _TEMPORAL[modes.times].get(kind.name) or _ALWAYS.get(kind.name)
    if mapped is not None:
        return mapped
    if kind.name == "decimal":
        return _decimal_type(kind, modes.decimals)
    if kind.name in {"fixed", "binary"}:
        return _BINARY[modes.binaries]
    raise ValueError(f"no form for type {kind.name}")


def _decimal_type(kind: Primitive, mode: DecimalMode) -> WireType:
    if mode == "string":
        return WireType("string", ValueEncoding.TEXT)
    if mode == "double":
        return WireType("double", ValueEncoding.DOUBLE)
    parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
    return WireType("bytes", ValueEncoding.UNSCALED, _CONNECT + "Decimal", parameters)
