"""Debezium's handling modes -> the same change in every form: each mode's events, as its connectors write them.

Sources: Debezium 3.7's PostgreSQL connector ("Data type mappings" of its documentation); forms that were recorded are
in tests/fixtures.
"""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
import pytest

from serde.avro.deserializer import AvroDeserializer
from serde.avro.emitted_schema import avro_schema
from serde.emit.type_mapping import BinaryMode, DecimalMode, TimeMode
from serde.formats import make_deserializer
from serde.messages import DecodedMessages
from tests.model import avro
from tests.unit.json_messages import framed

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
US, DAY, CLOCK = pa.timestamp("us"), date(2024, 2, 29), time(10, 11, 12, 123000)
MOMENT = datetime(2024, 5, 5, 1, 2, 3, 456000)
FINE_CLOCK, FINE_MOMENT = CLOCK.replace(microsecond=123456), MOMENT.replace(microsecond=456789)
MONEY = {"parameters": {"scale": "2", "connect.decimal.precision": "10"}}
SCALED = {
    "fields": [
        {"type": "int32", "field": "scale", "optional": False},
        {"type": "bytes", "field": "value", "optional": False},
    ]
}
PAIRS = {"keys": {"type": "string", "optional": False}, "values": {"type": "string", "optional": True}}

# mode -> (Connect type, schema name, more of the schema, value in JSON, decoded value, Arrow type)
Case = tuple[str, str | None, dict[str, Any], Any, Any, pa.DataType]
NUMBER = Decimal("1234.50")
ZONED: Case = (
    "string",
    TIME + "ZonedTimestamp",
    {},
    "2024-05-04T23:02:03.456789Z",
    datetime(2024, 5, 4, 23, 2, 3, 456789, UTC),
    pa.timestamp("us", "UTC"),
)
DAYS: Case = ("int32", TIME + "Date", {}, 19782, DAY, pa.date32())
MICRO_TIME: Case = ("int64", TIME + "MicroTime", {}, 36672123456, FINE_CLOCK, pa.time64("us"))
MICRO_STAMP: Case = ("int64", TIME + "MicroTimestamp", {}, 1714870923456789, FINE_MOMENT, US)
MILLI_STAMP: Case = ("int64", TIME + "Timestamp", {}, 1714870923456, MOMENT, US)
_PARTS = {"year": "int32", "month": "int8", "day": "int8", "hour": "int8", "minute": "int8", "second": "int8"}
_PARTS |= {"nanos": "int32", "offsetSeconds": "int32", "zoneId": "string", "specialValue": "string"}


def _structured(what: str, expected: Any, arrow: pa.DataType, **values: int) -> Case:
    members = [{"type": kind, "optional": True, "field": name} for name, kind in _PARTS.items()]
    return (
        "struct",
        f"{TIME}Structured{what}",
        {"fields": members},
        {**dict.fromkeys(_PARTS), **values},
        expected,
        arrow,
    )


_DATE_PARTS = {"year": 2024, "month": 5, "day": 5}
_CLOCK_PARTS = {"hour": 1, "minute": 2, "second": 3, "nanos": 456789000}
CASES: dict[str, tuple[Case, ...]] = {
    "decimal.handling.mode=precise": (
        ("bytes", CONNECT + "Decimal", MONEY, "AeI6", NUMBER, pa.decimal128(10, 2)),
        ("struct", DATA + "VariableScaleDecimal", SCALED, {"scale": 1, "value": "+w=="}, "-0.5", pa.string()),
    ),
    "decimal.handling.mode=double": (
        ("double", None, {}, 1234.5, 1234.5, pa.float64()),
        ("double", None, {}, "-Infinity", float("-inf"), pa.float64()),
    ),
    "decimal.handling.mode=string": (
        ("string", None, {}, "1234.50", "1234.50", pa.string()),
        ("string", None, {}, "NaN", "NaN", pa.string()),
    ),
    "time.precision.mode=adaptive": (
        DAYS,
        ("int32", TIME + "Time", {}, 36672123, CLOCK, pa.time64("us")),
        MICRO_TIME,
        MILLI_STAMP,
        MICRO_STAMP,
        ZONED,
    ),
    "time.precision.mode=adaptive_time_microseconds": (DAYS, MICRO_TIME, MILLI_STAMP, MICRO_STAMP, ZONED),
    "time.precision.mode=connect": (
        ("int32", CONNECT + "Date", {}, 19782, DAY, pa.date32()),
        ("int32", CONNECT + "Time", {}, 36672123, CLOCK, pa.time64("us")),
        ("int64", CONNECT + "Timestamp", {}, 1714870923456, MOMENT, US),
        ZONED,
    ),
    "time.precision.mode=isostring": (
        ("string", TIME + "IsoDate", {}, "2024-02-29Z", DAY, pa.date32()),
        ("string", TIME + "IsoTime", {}, "10:11:12.123456Z", FINE_CLOCK, pa.time64("us")),
        ("string", TIME + "IsoTimestamp", {}, "2024-05-05T01:02:03.456789Z", FINE_MOMENT, US),
        ("string", TIME + "IsoTimestamp", {}, "2024-05-05T01:02:03.456Z", MOMENT, US),
        ZONED,
    ),
    "time.precision.mode=microseconds": (DAYS, MICRO_TIME, MICRO_STAMP, ZONED),
    "time.precision.mode=nanoseconds": (
        DAYS,
        ("int64", TIME + "NanoTime", {}, 36672123456000, FINE_CLOCK, pa.time64("us")),
        ("int64", TIME + "NanoTimestamp", {}, 1714870923456789012, 1714870923456789012, pa.timestamp("ns")),
        ZONED,
    ),
    "time.precision.mode=structured": (
        _structured("Date", date(2024, 5, 5), pa.date32(), **_DATE_PARTS),
        _structured("Time", time(1, 2, 3, 456789), pa.time64("us"), **_CLOCK_PARTS),
        _structured("Timestamp", FINE_MOMENT, US, **_DATE_PARTS, **_CLOCK_PARTS),
        _structured(
            "ZonedTimestamp", ZONED[4], pa.timestamp("us", "UTC"), **_DATE_PARTS, **_CLOCK_PARTS, offsetSeconds=7200
        ),
    ),
    "binary.handling.mode=bytes": (("bytes", None, {}, "AP8Q", b"\x00\xff\x10", pa.binary()),),
    "binary.handling.mode=base64": (("string", None, {}, "+/8=", "+/8=", pa.string()),),
    "binary.handling.mode=base64-url-safe": (("string", None, {}, "-_8=", "-_8=", pa.string()),),
    "binary.handling.mode=hex": (("string", None, {}, "00ff10", "00ff10", pa.string()),),
    "interval.handling.mode=numeric": (
        ("int64", TIME + "MicroDuration", {}, 37091106789000, 37091106789000, pa.int64()),
    ),
    "interval.handling.mode=string": (
        ("string", TIME + "Interval", {}, "P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.789S", pa.string()),
    ),
    "hstore.handling.mode=json": (
        ("string", DATA + "Json", {}, '{"a":"1","b":null}', '{"a":"1","b":null}', pa.string()),
    ),
    "hstore.handling.mode=map": (
        ("map", None, PAIRS, {"a": "1", "b": None}, [("a", "1"), ("b", None)], pa.map_(pa.string(), pa.string())),
    ),
}


def _found(decoded: DecodedMessages) -> tuple[Any, pa.DataType]:
    assert decoded.faults == ()
    (block,) = decoded.blocks
    column = block.fields.field("f")
    nanoseconds = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return (column[0].value if nanoseconds else column[0].as_py()), column.type


def _datum(value: Any, schema: dict[str, Any]) -> Any:
    """The value as Avro has it: bytes are no text there, reals no words."""
    if schema["type"] == "bytes":
        return base64.b64decode(value)
    if schema["type"] == "struct":
        return {field["field"]: _datum(value[field["field"]], field) for field in schema["fields"]}
    return float(value) if schema["type"] == "double" else value


@pytest.mark.parametrize(
    ("mode", "case"), [(mode, case) for mode, cases in CASES.items() for case in cases], ids=lambda v: str(v)[:60]
)
def test_mode(mode: str, case: Case) -> None:
    """A value arrives in the type that the mode's schema means, exactly, and the same from JSON and from Avro."""
    kind, name, more, value, expected, arrow = case
    schema = {"type": kind, "optional": True, **({"name": name} if name else {}), **more, "field": "f"}
    json_message = pa.array([framed([schema], {"f": value})], pa.binary())
    assert _found(make_deserializer("json-schema").decode(json_message, "VALUE_CONVERTER")) == (expected, arrow), mode
    row = {"type": "struct", "name": "t.Value", "optional": False, "fields": [schema]}
    writer = avro_schema(row)
    datum = avro.written(_bare(writer), {"f": _datum(value, schema)})
    found = AvroDeserializer(avro.fetch(writer)).decode(pa.array([avro.framed(datum)], pa.binary()), "VALUE_CONVERTER")
    assert _found(found) == (expected, arrow), mode


def _bare(schema: Any) -> Any:
    """The schema without logical types, by which raw values are written."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if k not in {"logicalType", "default"}}
    return {k: _bare(v) if k in {"type", "items", "values", "fields"} else v for k, v in kept.items()}


def test_every_mode_is_here() -> None:
    """The modes that the source can write are all read."""
    told = {"decimal": DecimalMode, "time": TimeMode, "binary": BinaryMode}
    option = {"decimal": "decimal.handling.mode", "time": "time.precision.mode", "binary": "binary.handling.mode"}
    assert {f"{option[k]}={mode}" for k, modes in told.items() for mode in get_args(modes)} <= set(CASES)
