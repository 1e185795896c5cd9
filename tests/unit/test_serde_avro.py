"""Avro messages -> blocks: recorded events, types by Connect's and by Avro's own names, frames, schemas, faults."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from serde.avro import single_datum
from serde.avro.deserializer import AvroDeserializer
from serde.formats import make_deserializer
from serde.messages import DecodedMessages
from serde.wire_format import SchemaTexts, UnknownSchema
from tests.model import avro, recordings
from tests.model.avro import framed, written

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


def decode(schema: Any, *messages: bytes | None, wanted: frozenset[str] | None = None) -> DecodedMessages:
    """Whole messages through a converter whose registry has one schema."""
    return AvroDeserializer(avro.fetch(schema), wanted).decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")


def record(*fields: Any, name: str = "t.Value") -> Any:
    """A record of these fields, each (name, type)."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def one(kind: Any, value: Any) -> tuple[Any, pa.DataType]:
    """The decoded value (or the reason of its fault) and type of one nullable field, a null beside it."""
    schema, plain = record(("f", ["null", kind])), record(("f", ["null", _without_names(kind)]))
    outcome = decode(schema, framed(written(plain, {"f": None})), framed(written(plain, {"f": value})))
    (block,) = outcome.blocks
    found = dict(zip(block.rows.tolist(), block.fields.to_pylist(), strict=True))
    assert found[0] == {"f": None}
    return (found[1]["f"] if 1 in found else outcome.faults[0].reason), block.fields.type.field("f").type


def _without_names(kind: Any) -> Any:
    """The schema that the raw value is written by."""
    return {k: v for k, v in kind.items() if k != "logicalType"} if isinstance(kind, dict) else kind


def named(kind: str, name: str, **more: Any) -> Any:
    """An Avro type with Connect's name."""
    return {"type": kind, "connect.name": name, **more}


@pytest.mark.parametrize("table", [*recordings.TABLES, "exotic", "toasty", "events_nopk"])
def test_recorded_images_are_those_of_json(table: str) -> None:
    """The same changes recorded as Avro and as JSON with schema give the same images, types included."""
    schemas = recordings.writer_schemas()
    told = {
        recordings.AVRO: AvroDeserializer(lambda number: (schemas[number],)),
        "json_schema_envelope": make_deserializer("json-schema"),
    }
    images = []
    for variant, reader in told.items():
        values = pa.array([r.value for r in recordings.load(variant, table)], pa.binary())
        outcome = reader.decode(values, "VALUE_CONVERTER")
        rows = sorted(repr(image) for block in outcome.blocks for image in _images(block))
        images.append((rows, len(outcome.tombstones), sorted(fault.reason for fault in outcome.faults)))
    assert images[0] == images[1]


def _images(block: Any) -> list[Any]:
    kinds = block.fields.type.field("after").type
    return [(row["op"], row["before"], row["after"], str(kinds)) for row in block.fields.to_pylist()]


@pytest.mark.parametrize(
    ("kind", "value", "expected", "arrow"),
    [
        ("int", -(2**31), -(2**31), pa.int32()),
        ("long", 2**63 - 1, 2**63 - 1, pa.int64()),
        ("long", -(2**63), -(2**63), pa.int64()),
        ({"type": "int", "connect.type": "int8"}, -128, -128, pa.int32()),
        ({"type": "int", "connect.type": "int16"}, 2**15 - 1, 2**15 - 1, pa.int32()),
        ("float", 1.5, 1.5, pa.float32()),
        ("double", float("inf"), float("inf"), pa.float64()),
        ("boolean", True, True, pa.bool_()),
        ("string", "ü\n", "ü\n", pa.string()),
        ("bytes", b"\x00\xff", b"\x00\xff", pa.binary()),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b", pa.string()),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc", pa.binary()),
        (named("int", TIME + "Date"), 19782, date(2024, 2, 29), pa.date32()),
        (named("int", CONNECT + "Time"), 36672123, clock(10, 11, 12, 123000), pa.time64("us")),
        (named("long", TIME + "MicroTime"), 86_399_999_999, clock(23, 59, 59, 999999), pa.time64("us")),
        (named("long", TIME + "NanoTime"), 1000, clock(0, 0, 0, 1), pa.time64("us")),
        (named("long", CONNECT + "Timestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999000), pa.timestamp("us")),
        (named("long", TIME + "MicroTimestamp"), 1, datetime(1970, 1, 1, 0, 0, 0, 1), pa.timestamp("us")),
        (
            named("string", TIME + "ZonedTimestamp"),
            "2024-05-04T23:02:03.456789Z",
            datetime(2024, 5, 4, 23, 2, 3, 456789, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (named("string", TIME + "IsoDate"), "2017-09-15Z", date(2017, 9, 15), pa.date32()),
        (
            named("string", DATA + "Uuid"),
            "aaaaaaaa-0000-0000-0000-00000000000f",
            UUID("aaaaaaaa-0000-0000-0000-00000000000f"),
            pa.uuid(),
        ),
        (named("string", DATA + "Json"), '{"a" : 1}', '{"a" : 1}', pa.string()),
        (named("bytes", DATA + "Bits"), b"\xaa", b"\xaa", pa.binary()),
        (
            named("bytes", CONNECT + "Decimal", **{"connect.parameters": {"scale": "2"}, "precision": 64, "scale": 2}),
            b"\xff",
            Decimal("-0.01"),
            pa.decimal128(38, 2),
        ),
        ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2), pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, 1, clock(0, 0, 0, 1000), pa.time64("us")),
        ({"type": "long", "logicalType": "time-micros"}, 1, clock(0, 0, 0, 1), pa.time64("us")),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1,
            datetime(1970, 1, 1, 0, 0, 0, 1000),
            pa.timestamp("us"),
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1, datetime(1970, 1, 1, 0, 0, 0, 1), pa.timestamp("us")),
        ({"type": "string", "logicalType": "uuid"}, str(UUID(int=5)), UUID(int=5), pa.uuid()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
            b"\x0a",
            Decimal("1.0"),
            pa.decimal128(5, 1),
        ),
        (
            {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2},
            b"\xff\xfe",
            Decimal("-0.02"),
            pa.decimal128(4, 2),
        ),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None], pa.list_(pa.int32())),
        ({"type": "map", "values": "long"}, {"a": 1}, [("a", 1)], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_type(kind: Any, value: Any, expected: Any, arrow: pa.DataType) -> None:
    """A value arrives exactly, in the type of the table."""
    assert one(kind, value) == (expected, arrow)


@pytest.mark.parametrize(
    ("kind", "value", "label"),
    [
        ({"type": "int", "connect.type": "int8"}, 128, "int8"),
        (named("long", TIME + "MicroTimestamp"), 2**63 - 1, TIME + "MicroTimestamp"),
        (named("long", TIME + "MicroTime"), 86_400_000_000, TIME + "MicroTime"),
        (named("string", TIME + "ZonedTimestamp"), "infinity", TIME + "ZonedTimestamp"),
        (named("string", DATA + "Uuid"), "x", DATA + "Uuid"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1},
            b"\x64",
            CONNECT + "Decimal",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, b"", CONNECT + "Decimal"),
    ],
)
def test_what_cannot_be_represented_is_a_fault(kind: Any, value: Any, label: str) -> None:
    """No value is bent to fit; the option that helps is named."""
    option = "temporal" if label.startswith(TIME) else "decimal" if value == b"\x64" else None
    remedy = f"; a text column holds it (debezium.sink.iceberg.{option}-as-text)" if option else ""
    assert one(kind, value)[0] == f"field f: value cannot be represented ({label}){remedy}"


def test_variable_scale_decimal() -> None:
    """A number whose scale differs per row is its digits."""
    fields = [("scale", "int"), ("value", "bytes")]
    kind = {**record(*fields, name=DATA + "VariableScaleDecimal"), "connect.name": DATA + "VariableScaleDecimal"}
    assert one(kind, {"scale": 3, "value": b"\x01\x00"}) == ("0.256", pa.string())


def test_map_of_other_keys() -> None:
    """Connect writes a map with keys that are no text as an array of entries; it is a map again."""
    entry = {**record(("key", "int"), ("value", "string"), name="io.confluent.connect.avro.MapEntry")}
    value = [{"key": 1, "value": "a"}, {"key": 2, "value": "b"}]
    assert one({"type": "array", "items": entry}, value) == ([(1, "a"), (2, "b")], pa.map_(pa.int32(), pa.string()))


def test_optional_follows_the_unions() -> None:
    """A union with null is optional, in whatever order; any other field is required."""
    schema = record(("a", "int"), ("b", ["null", "int"]), ("c", [{"type": "int", "connect.default": 1}, "null"]))
    (block,) = decode(schema, framed(written(schema, {"a": 1, "b": None, "c": None}))).blocks
    assert (block.optional, block.name) == ({"a": False, "b": True, "c": True}, "t.Value")


def test_several_schemas_in_one_array() -> None:
    """Messages of several schema ids are blocks of their own, rows kept; a null is a tombstone."""
    old, new = record(("a", "int")), record(("a", "long"), ("b", "string"))
    messages = [
        framed(written(new, {"a": 1, "b": "x"}), avro.ID + 1),
        None,
        framed(written(old, {"a": 2})),
        framed(written(new, {"a": 3, "b": "y"}), avro.ID + 1),
    ]
    outcome = AvroDeserializer(avro.fetch(old, new)).decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    assert [(block.rows.tolist(), block.fields.to_pylist()) for block in outcome.blocks] == [
        ([2], [{"a": 2}]),
        ([0, 3], [{"a": 1, "b": "x"}, {"a": 3, "b": "y"}]),
    ]
    assert outcome.tombstones.tolist() == [1]


def test_a_top_level_null_is_a_tombstone() -> None:
    """An optional value that is null has no row."""
    schema = ["null", record(("a", "int"))]
    outcome = decode(schema, framed(b"\x00"), framed(b"\x02\x04"))
    assert (outcome.tombstones.tolist(), outcome.blocks[0].fields.to_pylist()) == ([0], [{"a": 2}])


def test_unwanted_fields_are_passed_over() -> None:
    """Of an envelope only the images and what is wanted becomes columns, and the rest is still checked."""
    image = record(("id", "int"), name="t.Row")
    source = record(
        ("db", "string"), ("tags", {"type": "array", "items": "string"}), ("ts_ms", "long"), name="t.Source"
    )
    schema = record(
        ("before", ["null", image]),
        ("after", ["null", "t.Row"]),
        ("source", source),
        ("op", "string"),
        ("x", ["null", "double"]),
    )
    value = {"before": None, "after": {"id": 1}, "source": {"db": "d", "tags": ["a"], "ts_ms": 5}, "op": "c", "x": 0.5}
    good = framed(written(schema, value))
    outcome = decode(schema, good, good[:-1], wanted=frozenset({"op", "source.ts_ms"}))
    assert outcome.blocks[0].fields.to_pylist() == [
        {"before": None, "after": {"id": 1}, "source": {"ts_ms": 5}, "op": "c"}
    ]
    assert [fault.row for fault in outcome.faults] == [1]


def test_what_is_passed_over_costs_no_row_that_is_read_alone() -> None:
    """A text that nobody wants need not be UTF-8, whoever reads the datum."""

    def envelope(query: str) -> Any:
        row = record(("a", {"type": "array", "items": "int"}), name="t.Row")
        source = record(("query", ["null", query]), ("ts_ms", "long"), name="t.Source")
        return record(("before", ["null", row]), ("after", ["null", "t.Row"]), ("source", source), ("op", "string"))

    source = {"query": b"\xff", "ts_ms": 5}
    values = [{"before": None, "after": {"a": [1] * count}, "source": source, "op": "c"} for count in (1, 900)]
    messages = [framed(written(envelope("bytes"), value)) for value in values]
    outcome = decode(envelope("string"), *messages, wanted=frozenset({"op", "source.ts_ms"}))
    assert not outcome.faults
    assert [len(row["after"]["a"]) for row in outcome.blocks[0].fields.to_pylist()] == [1, 900]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("int", "schema is not a struct"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "a type contains itself"),
        (record(("a", "Unknown")), "an unknown type name"),
        (record(("a", {"type": "array", "items": "null"})), "an array or map of nulls"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 0})), "no decimal of precision 0"),
        ({"name": "R"}, "malformed"),
        (record(("a", record(("b", "int"), name="R")), ("c", record(("d", "int"), name="R"))), "redefined named type"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["X", "X"]})), "must be unique"),
        ({"type": "record", "name": "R", "fields": [["a", "int"]]}, "malformed"),
        ({"type": "record", "name": 7, "fields": []}, "malformed"),
        ({"type": "record", "fields": []}, "is a required field"),
    ],
)
def test_unusable_schema(schema: Any, said: str) -> None:
    """A schema that cannot be used is a fault of its messages, with the id and the reason."""
    outcome = decode(schema, framed(b""), framed(b"\x02"))
    assert [fault.row for fault in outcome.faults] == [0, 1]
    assert all(f"schema id {avro.ID}: " in f.reason and said in f.reason for f in outcome.faults), outcome.faults


def test_an_unknown_id_is_a_fault_of_its_messages() -> None:
    """What the registry does not have is a fault; other messages are read."""
    schema = record(("a", "int"))

    def fetch(number: int) -> SchemaTexts:
        if number != avro.ID:
            raise UnknownSchema("gone")
        return (json.dumps(schema),)

    messages = pa.array([framed(b"\x02", 9), framed(b"\x02")], pa.binary())
    outcome = AvroDeserializer(fetch).decode(messages, "KEY_CONVERTER")
    assert [(f.row, f.stage, f.reason) for f in outcome.faults] == [(0, "KEY_CONVERTER", "schema id 9: gone")]
    assert outcome.blocks[0].rows.tolist() == [1]


def test_a_registry_that_is_away_is_no_fault() -> None:
    """Any other error of the registry leaves the decoder: no message is to blame."""

    def fetch(number: int) -> SchemaTexts:
        raise TimeoutError(number)

    with pytest.raises(TimeoutError):
        AvroDeserializer(fetch).decode(pa.array([framed(b"\x02")]), "VALUE_CONVERTER")


def test_schemas_that_refer_to_others() -> None:
    """The texts of schemas that are referred to come first, and their names are known."""
    inner, outer = record(("a", "int"), name="x.In"), record(("b", "x.In"), name="y.Out")
    reader = AvroDeserializer(lambda _: (json.dumps(inner), json.dumps(outer)))
    outcome = reader.decode(pa.array([framed(b"\x04")]), "VALUE_CONVERTER")
    assert outcome.blocks[0].fields.to_pylist() == [{"b": {"a": 2}}]


def test_long_lists_beside_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few datums with very many items among many with few are read as exactly, and only they one by one."""
    single: list[object] = []
    read = single_datum.read_datum
    monkeypatch.setattr(single_datum, "read_datum", lambda *datum: single.append(datum) or read(*datum))
    schema = record(("a", {"type": "array", "items": ["null", "long"]}), ("b", "string"))
    values = [{"a": [("long", n) for n in range(index % 3)], "b": "x"} for index in range(1000)]
    values[500] = {"a": [("long", n) if n % 7 else None for n in range(50_000)], "b": "long"}
    datums = pa.array([framed(written(schema, value)) for value in values])
    (block,) = AvroDeserializer(avro.fetch(schema)).decode(datums, "VALUE_CONVERTER").blocks
    assert len(single) == 1
    assert block.fields.to_pylist() == [avro.expected(schema, value) for value in values]


def test_a_bomb_of_items_is_a_fault() -> None:
    """A count of items beyond the datum's bytes is refused before anything is read."""
    schema = record(("a", {"type": "array", "items": "int"}))
    bombs = [
        framed(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        framed(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
    ]
    outcome = decode(schema, *bombs, framed(b"\x00"))
    assert [fault.row for fault in outcome.faults] == [0, 1]
    assert outcome.blocks[0].rows.tolist() == [2]


def test_slices_and_large_arrays() -> None:
    """Slices and large binary arrays are read where they are."""
    schema = record(("a", "string"))
    messages = [framed(written(schema, {"a": str(n)})) for n in range(10)]
    for kind in (pa.binary(), pa.large_binary()):
        outcome = AvroDeserializer(avro.fetch(schema)).decode(pa.array(messages, kind).slice(3, 4), "VALUE_CONVERTER")
        assert outcome.blocks[0].fields.to_pylist() == [{"a": str(n)} for n in range(3, 7)]


def test_avro_taken_for_json_says_so() -> None:
    """Without a converter named, such a message is a dead letter that tells which one reads it."""
    outcome = make_deserializer("auto").decode(pa.array([framed(b"\x02")], pa.binary()), "VALUE_CONVERTER")
    assert [fault.reason for fault in outcome.faults] == [
        "not JSON: it starts as Avro of a schema registry does; the AvroConverter reads that"
    ]


def _keys(expected: pa.StructType | None, schema: Any, *values: Any) -> DecodedMessages:
    messages = pa.array([framed(written(schema, value)) for value in values], pa.binary())
    return AvroDeserializer(avro.fetch(schema)).decode(messages, "KEY_CONVERTER", expected)


@pytest.mark.parametrize(
    ("schema", "values", "expected"),
    [
        ("long", [5, -6], [5, -6]),
        ("string", ["a", "\u00fc"], ["a", "\u00fc"]),
        ({"type": "int", "connect.name": TIME + "Date"}, [0, 1], [date(1970, 1, 1), date(1970, 1, 2)]),
        (["null", "int"], [1, 2], [1, 2]),
    ],
    ids=str,
)
def test_a_key_that_is_one_value_is_a_field(schema: Any, values: list[Any], expected: list[Any]) -> None:
    """A bare Avro value as key is its only field, named as the table's identifier column where there is one."""
    (block,) = _keys(None, schema, *values).blocks
    assert block.fields.to_pylist() == [{"key": value} for value in expected]
    (block,) = _keys(pa.struct([("id", pa.int64())]), schema, *values).blocks
    assert block.fields.to_pylist() == [{"id": value} for value in expected]


def test_a_single_value_is_no_row_and_no_key_of_several_columns() -> None:
    """A bare value is a fault where it cannot be a key: as a value, or with a table whose key has two columns."""
    two = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    outcomes = [_keys(two, "long", 5), decode("long", framed(written("long", 5)))]
    assert [[fault.row for fault in outcome.faults] for outcome in outcomes] == [[0], [0]]
    assert all("schema" in outcome.faults[0].reason for outcome in outcomes)


def test_forms_of_types_that_registries_take() -> None:
    """A type within a type, a name in place of one, names in the namespace around them, defaults of another type."""
    inner = {"type": "record", "name": "In", "fields": [{"name": "b", "type": {"type": {"type": "int"}}}]}
    fields = [
        {"name": "a", "type": inner, "default": "no record"},
        {"name": "c", "type": {"type": "In"}, "aliases": "none"},
        {"name": "d", "type": ["null", "x.y.In"], "default": 5},
        {"name": "e", "type": {"type": {"type": "string", "avro.java.string": "String"}}, "default": None},
    ]
    schema = {"type": "record", "name": "Out", "namespace": "x.y", "fields": fields}
    outcome = decode(schema, framed(b"\x02\x04\x02\x06\x02z"))
    assert outcome.faults == ()
    assert outcome.blocks[0].fields.to_pylist() == [{"a": {"b": 1}, "c": {"b": 2}, "d": {"b": 3}, "e": "z"}]


def test_no_schema_raises() -> None:
    """Whatever a registry holds, its messages are rows or faults."""
    whole = record(("a", ["null", record(("b", {"type": "map", "values": "long"}), name="n.In")]), ("c", "n.In"))
    text, odd = json.dumps(whole), ["null", "7", "[]", "{}", '"x"', '"type"', '{"type":"int"}', "true", '["null"]']
    parts = [at for at in range(len(text)) if text[at] in '"[{:,']
    for number, at in enumerate(parts):
        for piece in odd:
            for end in parts[number + 1 : number + 4]:
                spoilt = text[:at] + piece + text[end:]
                reader = AvroDeserializer(lambda _, spoilt=spoilt: (spoilt,))
                made = reader.decode(pa.array([framed(b"\x00\x00")]), "VALUE_CONVERTER")
                assert len(made.faults) + sum(len(block.rows) for block in made.blocks) + len(made.tombstones) == 1


def test_a_type_of_a_newer_version_is_told() -> None:
    """A name of Debezium's that is not known is named, its values are those of the plain type."""
    kind = named("long", TIME + "PicoTimestamp")
    outcome = decode(record(("f", kind)), framed(written(record(("f", "long")), {"f": 5})))
    (block,) = outcome.blocks
    assert block.unknown == {f"{TIME}PicoTimestamp (int64)"}
    assert block.fields.to_pylist() == [{"f": 5}]
