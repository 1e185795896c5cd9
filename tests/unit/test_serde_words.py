"""Numbers of dates and times -> ISO text, where a column is to hold what Iceberg's types have no room for."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde.avro.deserializer import AvroDeserializer
from serde.connect.text_columns import ALL_COLUMNS
from serde.connect.type_table import SEMANTIC_TYPES
from serde.connect.values.iso_text import TEXT_CONVERSIONS, format_date
from serde.events.unwrapping import UnwrapSettings, extract_changes
from serde.formats import make_deserializer
from serde.messages import DecodedMessages
from tests.model import avro, recordings
from tests.unit.json_messages import framed

CONNECT, TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_EPOCH = date(1970, 1, 1)


def one(kind: str, name: str, value: Any, *, columns: frozenset[str] = frozenset({"f"})) -> Any:
    """The text of one field, read from JSON and from Avro alike; the reason where it is a fault."""
    schema = {"type": kind, "optional": True, "field": "f", "name": name}
    told = make_deserializer("json-schema", text_columns=columns).decode(
        pa.array([framed([schema], {"f": value})], pa.binary()), "VALUE_CONVERTER"
    )
    own = {"int32": "int", "int64": "long", "string": "string"}[kind]
    writer = {"type": "record", "name": "t.V", "fields": [{"name": "f", "type": {"type": own, "connect.name": name}}]}
    datum = pa.array([avro.framed(avro.written(writer, {"f": value}))], pa.binary())
    other = AvroDeserializer(avro.fetch(writer), None, columns).decode(datum, "VALUE_CONVERTER")
    assert _outcome(told) == _outcome(other)
    return _outcome(told)


def _outcome(decoded: DecodedMessages) -> Any:
    if decoded.faults:
        return decoded.faults[0].reason
    return decoded.blocks[0].fields.to_pylist()[0]["f"]


@pytest.mark.parametrize(
    ("kind", "name", "value", "text"),
    [
        ("int32", TIME + "Date", 19782, "2024-02-29"),
        ("int32", CONNECT + "Date", -735160, "-0043-03-15"),
        ("int32", TIME + "Date", 2932897, "+10000-01-01"),
        ("int32", TIME + "Date", 2146033979, "infinity"),
        ("int32", TIME + "Date", -2147472692, "infinity"),
        ("int32", TIME + "Date", -2147472691, "-infinity"),
        ("int32", TIME + "Time", 36672123, "10:11:12.123"),
        ("int32", CONNECT + "Time", 86_400_000, "24:00:00"),
        ("int64", TIME + "MicroTime", 86_399_999_999, "23:59:59.999999"),
        ("int64", TIME + "MicroTime", 86_400_000_000, "24:00:00"),
        ("int32", TIME + "Time", -1, "-00:00:00.001"),
        ("int64", TIME + "MicroTime", 86_400_000_001, "24:00:00.000001"),
        ("int64", TIME + "MicroTime", -3_020_399_000_000, "-838:59:59.000000"),
        ("int64", TIME + "MicroTime", 3_020_399_000_000, "838:59:59.000000"),
        ("int64", TIME + "NanoTime", -5, "-00:00:00.000000005"),
        ("int64", TIME + "NanoTime", 1, "00:00:00.000000001"),
        ("int64", TIME + "NanoTime", 86_400_000_000_000, "24:00:00"),
        ("int64", TIME + "Timestamp", 1714870923456, "2024-05-05T01:02:03.456"),
        ("int64", CONNECT + "Timestamp", 9223372036825200000, "infinity"),
        ("int64", TIME + "MicroTimestamp", 1714870923456789, "2024-05-05T01:02:03.456789"),
        ("int64", TIME + "MicroTimestamp", -63517780800000000, "-0043-03-15T12:00:00.000000"),
        ("int64", TIME + "MicroTimestamp", 2**63 - 1, "infinity"),
        ("int64", TIME + "MicroTimestamp", -(2**63), "-infinity"),
        ("int64", TIME + "NanoTimestamp", -1, "1969-12-31T23:59:59.999999999"),
        ("string", TIME + "ZonedTimestamp", "-infinity", "-infinity"),
        ("string", TIME + "ZonedTimestamp", "-0043-03-15T12:00:00.000000Z", "-0043-03-15T12:00:00.000000Z"),
        ("string", TIME + "IsoTime", "24:00:00Z", "24:00:00Z"),
        ("string", TIME + "IsoDate", "2024-02-29Z", "2024-02-29Z"),
        ("string", TIME + "IsoTimestamp", "infinity", "infinity"),
    ],
)
def test_text(kind: str, name: str, value: Any, text: str) -> None:
    """Every value has one text, the numbers that stand for infinity its word."""
    assert one(kind, name, value) == text
    assert one(kind, name, value, columns=frozenset({ALL_COLUMNS})) == text


def test_other_columns_keep_their_types() -> None:
    """Only the columns that were named become text, in both images of an envelope, and what nests in them."""
    wanted = UnwrapSettings(("op",)).wanted
    records = recordings.load("json_schema_envelope", "exotic")
    data = pa.array([r.value for r in records], pa.binary())
    decoded = make_deserializer("json-schema", wanted, text_columns=frozenset({"ts", "tz", "dt", "tm", "da"})).decode(
        data, "VALUE_CONVERTER"
    )
    assert decoded.faults == ()
    (block,) = decoded.blocks
    made, _, _ = extract_changes(block, UnwrapSettings(("op",)))
    assert made is not None
    types = {field.name: field.type for field in made.row.type}
    assert [types[name] for name in ("ts", "tz", "dt", "tm")] == [pa.string()] * 4
    assert types["da"] == pa.list_(pa.string())
    assert (types["ts3"], types["t3"]) == (pa.timestamp("us"), pa.time64("us"))
    row = next(r for r in made.row.to_pylist() if r["id"] == 1 and r["dt"] == "infinity")
    assert (row["tm"], row["ts"], row["tz"], row["da"]) == ("24:00:00", "infinity", "-infinity", ["2024-02-29", None])


def test_decimals_of_maps_are_text_as_those_of_lists() -> None:
    """The option for a column's decimals is for all that nests in it: items, keys and values, fields."""
    decimal = {"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "2"}}
    inner = {"type": "map", "keys": decimal, "values": {"type": "array", "items": decimal}}
    schema = {"type": "struct", "fields": [{**inner, "field": name} for name in ("m", "n")]}
    raw = orjson.dumps({"schema": schema, "payload": {"m": [["fQ==", ["fQ=="]]], "n": [["fQ==", ["fQ=="]]]}})
    outcome = make_deserializer("auto", number_columns=frozenset({"m"})).decode(pa.array([raw]), "VALUE_CONVERTER")
    (row,) = outcome.blocks[0].fields.to_pylist()
    assert row == {"m": [("1.25", ["1.25"])], "n": [(Decimal("1.25"), [Decimal("1.25")])]}
    assert outcome.blocks[0].numbers == {"m.value.element"}


@given(st.dates())
def test_days_are_pythons(day: date) -> None:
    """The calendar is Python's where Python has one."""
    assert format_date((day - _EPOCH) // timedelta(1)) == day.isoformat()


def test_every_temporal_type_has_words() -> None:
    """No date or time of the table of types is forgotten."""
    temporal = {name for (_, name), kind in SEMANTIC_TYPES.items() if pa.types.is_temporal(kind.logical)}
    assert temporal == set(TEXT_CONVERSIONS)
