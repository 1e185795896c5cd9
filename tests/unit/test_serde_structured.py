"""Structs of calendar and clock parts (`time.precision.mode=structured`) -> dates, times, and their text."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from serde.avro.deserializer import AvroDeserializer
from serde.connect.values.structured_times import STRUCTURED_TYPES
from serde.formats import make_deserializer
from tests.model import avro
from tests.unit.json_messages import framed

TIME = "io.debezium.time.Structured"
REMEDY = "a text column holds it (debezium.sink.iceberg.temporal-as-text)"
_LONGS = {"seconds", "picoseconds"}
_BYTES = {"month", "day", "hour", "minute", "second"}
FIELDS = {
    "Date": ("year", "month", "day", "specialValue"),
    "Time": ("hour", "minute", "second", "nanos", "precision"),
    "Timestamp": ("year", "month", "day", "hour", "minute", "second", "nanos", "specialValue", "precision"),
    "ZonedTime": ("hour", "minute", "second", "nanos", "offsetSeconds", "precision"),
    "ZonedTimestamp": (
        *("year", "month", "day", "hour", "minute", "second", "nanos", "offsetSeconds", "zoneId", "specialValue"),
        "precision",
    ),
    "Duration": ("years", "months", "days", "hours", "minutes", "seconds", "nanos", "precision"),
}
INFINITY, MINUS_INFINITY = {"specialValue": "POSITIVE_INFINITY"}, {"specialValue": "NEGATIVE_INFINITY"}
MOMENT = {"year": 2024, "month": 2, "day": 29, "hour": 23, "minute": 59, "second": 58, "nanos": 123456000}


def _kind(name: str) -> str:
    if name in ("specialValue", "zoneId"):
        return "string"
    return "int64" if name in _LONGS else "int8" if name in _BYTES else "int32"


def one(name: str, value: Any, columns: frozenset[str] = frozenset()) -> tuple[Any, pa.DataType]:
    """The value and type of one field, read from JSON and from Avro alike; a null stands beside it."""
    parts = [{"type": _kind(part), "optional": True, "field": part} for part in _fields(name, value)]
    schema = {"type": "struct", "optional": True, "field": "f", "name": TIME + name, "fields": parts}
    data = pa.array([framed([schema], {"f": None}), framed([schema], {"f": value})], pa.binary())
    told = make_deserializer("json-schema", text_columns=columns).decode(data, "VALUE_CONVERTER")
    kinds = {"int8": "int", "int32": "int", "int64": "long", "string": "string"}
    members = [{"name": p["field"], "type": ["null", kinds[p["type"]]], "default": None} for p in parts]
    record = {"type": "record", "name": "S", "fields": members, "connect.name": TIME + name}
    writer = {"type": "record", "name": "t.V", "fields": [{"name": "f", "type": ["null", record]}]}
    whole = {part: value.get(part) for part in _fields(name, value)}
    datums = pa.array([avro.framed(avro.written(writer, {"f": v})) for v in (None, whole)], pa.binary())
    other = AvroDeserializer(avro.fetch(writer), None, columns).decode(datums, "VALUE_CONVERTER")
    found = []
    for decoded in (told, other):
        (block,) = decoded.blocks
        assert block.fields.field("f")[0].as_py() is None
        text = decoded.faults[0].reason if decoded.faults else block.fields.field("f")[1].as_py()
        found.append((text, block.fields.type.field("f").type))
    assert found[0] == found[1]
    return found[0]


def _fields(name: str, value: Any) -> list[str]:
    newer = "picoseconds" in value
    return ["picoseconds" if newer and part == "nanos" else part for part in FIELDS[name]]


@pytest.mark.parametrize(
    ("name", "value", "expected", "arrow"),
    [
        ("Date", {"year": 2024, "month": 2, "day": 29}, date(2024, 2, 29), pa.date32()),
        ("Date", {"year": 1, "month": 1, "day": 1}, date(1, 1, 1), pa.date32()),
        ("Time", {"hour": 23, "minute": 59, "second": 59, "nanos": 999999000}, time(23, 59, 59, 999999), None),
        ("Timestamp", MOMENT, datetime(2024, 2, 29, 23, 59, 58, 123456), pa.timestamp("us")),
        (
            "Timestamp",
            {**{k: v for k, v in MOMENT.items() if k != "nanos"}, "picoseconds": 123456000000, "precision": 6},
            datetime(2024, 2, 29, 23, 59, 58, 123456),
            pa.timestamp("us"),
        ),
        (
            "ZonedTimestamp",
            {**MOMENT, "offsetSeconds": 7200, "zoneId": "Europe/Berlin"},
            datetime(2024, 2, 29, 21, 59, 58, 123456, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (
            "ZonedTime",
            {"hour": 24, "minute": 0, "second": 0, "nanos": 0, "offsetSeconds": -43200},
            "24:00:00.000000000-12:00",
            pa.string(),
        ),
        (
            "Duration",
            {"years": 0, "months": 0, "days": 0, "hours": -838, "minutes": -59, "seconds": -59, "nanos": 0},
            "P0Y0M0DT-838H-59M-59S",
            pa.string(),
        ),
        (
            "Duration",
            {"years": 1, "months": 2, "days": 3, "hours": 4, "minutes": 5, "seconds": 6, "nanos": 780000000},
            "P1Y2M3DT4H5M6.78S",
            pa.string(),
        ),
        ("Duration", {"seconds": 0, "nanos": -500000000}, "P0Y0M0DT0H0M-0.5S", pa.string()),
        ("Duration", {"seconds": -1, "nanos": 500000000}, "P0Y0M0DT0H0M-0.5S", pa.string()),
    ],
)
def test_a_struct_is_its_value(name: str, value: Any, expected: Any, arrow: pa.DataType | None) -> None:
    """A struct of parts arrives as the date, time or text that it stands for, and null as null."""
    found, kind = one(name, value)
    assert (found, kind) == (expected, arrow or STRUCTURED_TYPES[TIME + name].logical)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Date", INFINITY),
        ("Date", {"year": 0, "month": 0, "day": 0}),
        ("Date", {"year": 2023, "month": 2, "day": 29}),
        ("Date", {"year": 10000, "month": 1, "day": 1}),
        ("Time", {"hour": 24, "minute": 0, "second": 0, "nanos": 0}),
        ("Timestamp", {**MOMENT, "nanos": 1}),
        ("Timestamp", MINUS_INFINITY),
        ("ZonedTimestamp", {**MOMENT, "month": 13}),
        ("ZonedTimestamp", {**MOMENT, "year": 1, "month": 1, "day": 1, "hour": 0, "offsetSeconds": 3600}),
        ("ZonedTimestamp", {**MOMENT, "year": 9999, "month": 12, "day": 31, "offsetSeconds": -28800}),
    ],
)
def test_what_has_no_place_is_a_fault(name: str, value: Any) -> None:
    """Infinity, zero dates, 24:00:00 and finer digits are named, and never bent."""
    found, _ = one(name, value)
    assert found == f"field f: value cannot be represented ({TIME}{name}); {REMEDY}"


@pytest.mark.parametrize(
    "columns", [frozenset({"f"}), frozenset({"*"}), frozenset({TIME + "Date", TIME + "Timestamp"})]
)
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("Date", {"year": 2024, "month": 2, "day": 29}, "2024-02-29"),
        ("Date", INFINITY, "infinity"),
        ("Date", {"year": 0, "month": 0, "day": 0}, "0000-00-00"),
        ("Date", {"year": -43, "month": 3, "day": 15}, "-0043-03-15"),
        ("Date", {"year": 294276, "month": 12, "day": 31}, "+294276-12-31"),
        ("Timestamp", {**MOMENT, "nanos": 1}, "2024-02-29T23:59:58.000000001"),
        ("Timestamp", MINUS_INFINITY, "-infinity"),
    ],
)
def test_text_keeps_everything(name: str, value: Any, text: str, columns: frozenset[str]) -> None:
    """As text, by column or by type, every value of the source has its place."""
    assert one(name, value, columns) == (text, pa.string())


def test_a_zoned_timestamp_as_text_keeps_offset_and_zone() -> None:
    """What the instant alone does not say stays readable."""
    value = {**MOMENT, "offsetSeconds": 3600, "zoneId": "Europe/Berlin"}
    text, _ = one("ZonedTimestamp", value, frozenset({"f"}))
    assert text == "2024-02-29T23:59:58.123456000+01:00[Europe/Berlin]"
