"""Connect schema types -> logical columns: every row of the table of types."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from serde.connect.type_table import SEMANTIC_TYPES
from serde.connect.values.binary_values import encode_unscaled
from tests.unit.json_messages import decode, framed, rows

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


def one(kind: str, name: str | None, value: Any, **more: Any) -> tuple[Any, pa.DataType]:
    """The decoded value and type of one field, a null beside it."""
    schema = {"type": kind, "optional": True, "field": "f", **({"name": name} if name else {}), **more}
    decoded = decode(framed([schema], {"f": None}), framed([schema], {"f": value}))
    (block,) = decoded.blocks
    found = rows(decoded)
    assert found[0] == {"f": None}
    return (found[1]["f"] if 1 in found else decoded.faults[0].reason), block.fields.type.field("f").type


@pytest.mark.parametrize(
    ("kind", "name", "value", "expected", "arrow"),
    [
        ("int8", None, -128, -128, pa.int32()),
        ("int16", None, 32767, 32767, pa.int32()),
        ("int32", None, -(2**31), -(2**31), pa.int32()),
        ("int64", None, 2**63 - 1, 2**63 - 1, pa.int64()),
        ("float", None, 1.5, 1.5, pa.float32()),
        ("double", None, 0.1, 0.1, pa.float64()),
        ("double", None, "Infinity", float("inf"), pa.float64()),
        ("boolean", None, True, True, pa.bool_()),
        ("string", None, "ü\n", "ü\n", pa.string()),
        ("bytes", None, "AP8Q", b"\x00\xff\x10", pa.binary()),
        ("bytes", None, "", b"", pa.binary()),
        ("int32", CONNECT + "Date", 19782, date(2024, 2, 29), pa.date32()),
        ("int32", TIME + "Date", -719162, date(1, 1, 1), pa.date32()),
        ("int32", CONNECT + "Time", 36672123, time(10, 11, 12, 123000), pa.time64("us")),
        ("int32", TIME + "Time", 0, time(0), pa.time64("us")),
        ("int64", TIME + "MicroTime", 86_399_999_999, time(23, 59, 59, 999999), pa.time64("us")),
        ("int64", TIME + "NanoTime", 1_000, time(0, 0, 0, 1), pa.time64("us")),
        ("int64", CONNECT + "Timestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999000), pa.timestamp("us")),
        ("int64", TIME + "Timestamp", 0, datetime(1970, 1, 1), pa.timestamp("us")),
        ("int64", TIME + "MicroTimestamp", 1, datetime(1970, 1, 1, 0, 0, 0, 1), pa.timestamp("us")),
        (
            "string",
            TIME + "ZonedTimestamp",
            "2024-05-04T23:02:03.456789Z",
            datetime(2024, 5, 4, 23, 2, 3, 456789, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (
            "string",
            TIME + "ZonedTimestamp",
            "2024-05-04T23:02:03.456789000+02:00",
            datetime(2024, 5, 4, 21, 2, 3, 456789, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (
            "string",
            TIME + "ZonedTimestamp",
            "1890-05-04T23:02:03.456789000+01:02:03",
            datetime(1890, 5, 4, 22, 0, 0, 456789, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (
            "string",
            TIME + "ZonedTimestamp",
            "1890-05-04T23:02:03-00:01:15",
            datetime(1890, 5, 4, 23, 3, 18, 0, UTC),
            pa.timestamp("us", "UTC"),
        ),
        ("string", TIME + "ZonedTime", "07:11:12.123456+01:02:03", "07:11:12.123456+01:02:03", pa.string()),
        ("string", TIME + "ZonedTime", "07:11:12.123456Z", "07:11:12.123456Z", pa.string()),
        ("int32", TIME + "Year", 2024, 2024, pa.int32()),
        ("string", TIME + "IsoDate", "2017-09-15Z", date(2017, 9, 15), pa.date32()),
        ("string", TIME + "IsoTime", "04:05:11.789Z", time(4, 5, 11, 789000), pa.time64("us")),
        (
            "string",
            TIME + "IsoTimestamp",
            "2019-07-09T02:28:57.123456Z",
            datetime(2019, 7, 9, 2, 28, 57, 123456),
            pa.timestamp("us"),
        ),
        (
            "string",
            DATA + "Uuid",
            "AAAAAAAA-0000-0000-0000-00000000000f",
            UUID("aaaaaaaa-0000-0000-0000-00000000000f"),
            pa.uuid(),
        ),
        ("string", DATA + "Json", '{"a" : 1}', '{"a" : 1}', pa.string()),
        ("string", DATA + "Enum", "x", "x", pa.string()),
        ("bytes", DATA + "Bits", "qg==", b"\xaa", pa.binary()),
        ("int64", TIME + "MicroDuration", 5, 5, pa.int64()),
        ("int64", TIME + "NanoDuration", -5, -5, pa.int64()),
        ("string", TIME + "Interval", "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S", pa.string()),
        ("string", DATA + "EnumSet", "a,b", "a,b", pa.string()),
        ("string", DATA + "Xml", "<a/>", "<a/>", pa.string()),
        ("string", DATA + "Ltree", "a.b", "a.b", pa.string()),
        ("string", DATA + "Tsvector", "'a':1", "'a':1", pa.string()),
        ("string", "my.own.Type", "v", "v", pa.string()),
    ],
)
def test_type(kind: str, name: str | None, value: Any, expected: Any, arrow: pa.DataType) -> None:
    """A value of the schema type arrives exactly, in the type of the table."""
    assert one(kind, name, value) == (expected, arrow)


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": name}


def test_vectors() -> None:
    """Dense vectors are lists, sparse ones a struct of the size and a map by position."""
    items = {"items": {"type": "double", "optional": False}}
    assert one("array", DATA + "DoubleVector", [1.5, -2], **items) == ([1.5, -2.0], pa.list_(pa.float64()))
    parts = {"type": "map", "keys": {"type": "int16"}, "values": {"type": "double"}, "field": "vector"}
    value, kind = one(
        "struct",
        DATA + "SparseDoubleVector",
        {"dimensions": 9, "vector": [[1, 0.5], [7, 2]]},
        fields=[_field("dimensions", "int16"), parts],
    )
    assert value == {"dimensions": 9, "vector": [(1, 0.5), (7, 2.0)]}
    assert kind == pa.struct([("dimensions", pa.int32()), ("vector", pa.map_(pa.int32(), pa.float64()))])


@pytest.mark.parametrize("name", ["Point", "Geometry", "Geography"])
def test_geometries(name: str) -> None:
    """A geometry is its bytes (WKB) and reference system, a point its coordinates too."""
    fields = [_field("x", "double"), _field("y", "double"), _field("wkb", "bytes"), _field("srid", "int32")]
    fields = fields if name == "Point" else fields[2:]
    given = {"x": 1.5, "y": 2, "wkb": "AQE=", "srid": 4326}
    expected = {"x": 1.5, "y": 2.0, "wkb": b"\x01\x01", "srid": 4326}
    names = [field["field"] for field in fields]
    value, _ = one("struct", DATA + f"geometry.{name}", {n: given[n] for n in names}, fields=fields)
    assert value == {n: expected[n] for n in names}


def test_nanosecond_timestamp_keeps_its_digits() -> None:
    """NanoTimestamp is not cut to microseconds."""
    schema = {"type": "int64", "name": TIME + "NanoTimestamp", "field": "f"}
    (block,) = decode(framed([schema], {"f": 1_700_000_000_123_456_789})).blocks
    assert block.fields.field("f").type == pa.timestamp("ns")
    assert block.fields.field("f")[0].value == 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("int64", TIME + "MicroTime", 86_400_000_000),
        ("int32", TIME + "Time", -1),
        ("int64", TIME + "NanoTime", 1_001),
        ("int64", TIME + "MicroTimestamp", 2**63 - 1),
        ("int64", TIME + "MicroTimestamp", 9223372036825200000),
        ("int64", TIME + "NanoTimestamp", 2**63 - 1),
        ("int64", TIME + "Timestamp", 2**63 - 1),
        ("int32", TIME + "Date", 2146033979),
        ("int32", TIME + "Date", -2147472692),
        ("string", TIME + "ZonedTimestamp", "infinity"),
        ("string", TIME + "ZonedTimestamp", "-infinity"),
        ("string", TIME + "ZonedTimestamp", "-0043-03-15T00:00:00Z"),
        ("string", TIME + "ZonedTimestamp", "0000-01-01T00:00:00Z"),
        ("string", TIME + "ZonedTimestamp", "+10000-01-01T00:00:00Z"),
        ("string", TIME + "ZonedTimestamp", "0001-01-01T00:00:00+01:02:03"),
        ("string", TIME + "ZonedTimestamp", "9999-12-31T23:59:59-00:00:01"),
        ("string", TIME + "ZonedTimestamp", "2024-01-01T00:00:00+25:00:01"),
        ("string", TIME + "IsoTimestamp", "1890-05-04T23:02:03+01:02:03"),
        ("string", TIME + "ZonedTimestamp", "2024-05-04T23:02:03.456789123Z"),
        ("string", TIME + "ZonedTimestamp", "2024-02-30T00:00:00Z"),
        ("string", TIME + "IsoDate", "2024-13-01Z"),
        ("string", TIME + "IsoTime", "24:00:00Z"),
        ("string", DATA + "Uuid", "aaaaaaaa-0000-0000-0000-00000000000g"),
        ("string", DATA + "Uuid", "aaaaaaaa000000000000000000000000"),
        ("bytes", None, "A==="),
        ("bytes", None, "?AAA"),
        ("bytes", CONNECT + "Decimal", ""),
        ("bytes", CONNECT + "Decimal", "1.5"),
    ],
)
def test_what_cannot_be_represented_is_a_fault(kind: str, name: str | None, value: Any) -> None:
    """The fault names field and type, and the option that helps, if any does; no value is bent to fit."""
    outcome, _ = one(kind, name, value)
    remedy = "; a text column holds it (debezium.sink.iceberg.temporal-as-text)" if TIME in (name or "") else ""
    assert outcome == f"field f: value cannot be represented ({name or kind}){remedy}"


@pytest.mark.parametrize("text", ["0", "1", "-1", "1.23", "-12345678.90", "9999999999.99", "-9999999999.99", "0.01"])
def test_decimal(text: str) -> None:
    """Base64 two's complement with scale and precision in text parameters."""
    number = Decimal(text)
    parameters = {"scale": "2", "connect.decimal.precision": "12"}
    value = encode_unscaled(int(number.scaleb(2)))
    assert one("bytes", CONNECT + "Decimal", value, parameters=parameters) == (number, pa.decimal128(12, 2))


def test_decimal_without_precision_is_38_wide() -> None:
    """PostgreSQL's money has a scale only."""
    assert one("bytes", CONNECT + "Decimal", "AeJA", parameters={"scale": "2"}) == (
        Decimal("1234.56"),
        pa.decimal128(38, 2),
    )


def test_decimal_beyond_its_precision_is_a_fault() -> None:
    """A number that has more digits than declared is not cut."""
    outcome, _ = one(
        "bytes", CONNECT + "Decimal", encode_unscaled(1000), parameters={"scale": "0", "connect.decimal.precision": "3"}
    )
    remedy = "a text column holds it (debezium.sink.iceberg.decimal-as-text)"
    assert outcome == f"field f: value cannot be represented ({CONNECT}Decimal); {remedy}"


@pytest.mark.parametrize(
    ("precision", "scale", "text"),
    [
        (65, 30, "-99999999999999999999999999999999999.999999999999999999999999999999"),
        (65, 30, "0.000000000000000000000000000001"),
        (39, 0, "123456789012345678901234567890123456789"),
        (None, 45, "-0." + "0" * 44 + "1"),
        (50, -3, "12" + "0" * 48),
    ],
)
def test_decimal_beyond_38_digits_is_text(precision: int | None, scale: int, text: str) -> None:
    """Every digit arrives, as many behind the point as the scale has, and no value decides the type."""
    with localcontext(prec=100):
        unscaled = int(Decimal(text).scaleb(scale))
    told = {"scale": str(scale), **({"connect.decimal.precision": str(precision)} if precision else {})}
    assert one("bytes", CONNECT + "Decimal", encode_unscaled(unscaled), parameters=told) == (text, pa.string())
    assert one("bytes", CONNECT + "Decimal", None, parameters=told) == (None, pa.string())


@pytest.mark.parametrize(
    ("precision", "scale", "unscaled", "number", "arrow"),
    [
        (5, -2, 123, Decimal("12300"), pa.decimal128(7, 0)),
        (3, 5, -999, Decimal("-0.00999"), pa.decimal128(5, 5)),
    ],
)
def test_decimal_of_odd_scale_is_a_decimal(
    precision: int, scale: int, unscaled: int, number: Decimal, arrow: pa.DataType
) -> None:
    """Oracle's NUMBER(5,-2) and NUMBER(3,5) are numbers of other digits, not text."""
    told = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    assert one("bytes", CONNECT + "Decimal", encode_unscaled(unscaled), parameters=told) == (number, arrow)


def test_decimal_as_json_number_is_exact() -> None:
    """decimal.format=NUMERIC writes numbers; digits beyond a double survive."""
    schema = {
        "type": "bytes",
        "name": CONNECT + "Decimal",
        "parameters": {"scale": "4", "connect.decimal.precision": "30"},
    }
    message = framed([{**schema, "field": "f"}], {"f": 7}).replace(b":7}", b":123456789012345678.1234}")
    assert rows(decode(message)) == {0: {"f": Decimal("123456789012345678.1234")}}


@pytest.mark.parametrize(
    ("scale", "unscaled", "text"), [(2, 12345, "123.45"), (0, -7, "-7"), (-3, 5, "5000"), (4, -1, "-0.0001")]
)
def test_variable_scale_decimal_is_exact_text(scale: int, unscaled: int, text: str) -> None:
    """The scale differs per value, so the number travels as text."""
    fields = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
    value = {"scale": scale, "value": encode_unscaled(unscaled)}
    assert one("struct", DATA + "VariableScaleDecimal", value, fields=fields) == (text, pa.string())


def test_nested_logical_types() -> None:
    """Arrays, structs and maps carry logical types inside, and a bad item names the field and costs its row."""
    array = {
        "type": "array",
        "optional": True,
        "field": "a",
        "items": {"type": "int32", "optional": True, "name": TIME + "Date"},
    }
    pairs = {
        "type": "map",
        "optional": True,
        "field": "m",
        "keys": {"type": "string", "optional": False},
        "values": {"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "1"}},
    }
    good = framed([array, pairs], {"a": [0, None], "m": {"k": "Bg=="}})
    bad = framed([array, pairs], {"a": [0, 2**31 - 1], "m": None})
    decoded = decode(good, bad, good)
    assert rows(decoded)[2] == {"a": [date(1970, 1, 1), None], "m": [("k", Decimal("0.6"))]}
    assert [(fault.row, fault.reason) for fault in decoded.faults] == [
        (
            1,
            f"field a: value cannot be represented ({TIME}Date); "
            "a text column holds it (debezium.sink.iceberg.temporal-as-text)",
        )
    ]


def test_a_bad_value_before_an_update_costs_itself_only() -> None:
    """An update whose old row held infinity is still an update; a delete of it is a fault."""
    image = {"type": "struct", "optional": True, "fields": [{"type": "int32", "name": TIME + "Date", "field": "d"}]}
    source = {"type": "struct", "field": "source", "fields": [{"type": "int64", "field": "ts_ms"}]}
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, source, {"type": "string", "field": "op"}]
    late = {"d": 2**31 - 1}
    update = framed(fields, {"before": late, "after": {"d": 0}, "source": {"ts_ms": 1}, "op": "u"}, "t.Envelope")
    delete = framed(fields, {"before": late, "after": None, "source": {"ts_ms": 1}, "op": "d"}, "t.Envelope")
    decoded = decode(update, delete)
    assert rows(decoded)[0]["before"] == {"d": None} and rows(decoded)[0]["after"] == {"d": date(1970, 1, 1)}
    assert [fault.row for fault in decoded.faults] == [1]


@pytest.mark.parametrize("size", range(12))
def test_bytes_of_any_length(size: int) -> None:
    """Padding is cut off for each row on its own."""
    schema = {"type": "bytes", "optional": True, "field": "f"}
    values = [bytes(range(n)) for n in range(size + 1)]
    decoded = decode(*(framed([schema], {"f": base64.b64encode(value).decode()}) for value in values))
    assert [row["f"] for row in rows(decoded).values()] == values


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("int64", TIME + "PicoTimestamp", 5), ("int64", TIME + "Date", 5), ("string", DATA + "Mood", "x")],
)
def test_a_type_of_a_newer_version_is_told(kind: str, name: str, value: Any) -> None:
    """A name of Debezium's that is not known, at any depth, is named beside values as their plain type."""
    field = {"type": kind, "optional": True, "name": name}
    nested = {"type": "array", "items": field, "field": "l"}
    decoded = decode(framed([{**field, "field": "f"}, nested], {"f": value, "l": [value]}))
    (block,) = decoded.blocks
    assert block.unknown == {f"{name} ({kind})"}
    assert rows(decoded) == {0: {"f": value, "l": [value]}}


def test_names_of_others_are_not_told() -> None:
    """Known types, and names that a user gave, are nothing new."""
    fields = [{"type": kind, "optional": True, "name": name} for kind, name in SEMANTIC_TYPES]
    fields.append({"type": "string", "optional": True, "name": "my.own.Type"})
    fields = [{**field, "field": f"f{number}"} for number, field in enumerate(fields)]
    (block,) = decode(framed(fields, {})).blocks
    assert not block.unknown
