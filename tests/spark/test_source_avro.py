"""Columns -> Avro keys and values by Spark and Arrow: fastavro reads what JSON says of the same rows."""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import attrs
import fastavro
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import FatalError
from connector.source.changes.read_errors import translate_read_errors
from connector.source.destinations.kafka import to_kafka_records
from connector.source.envelope import json_values
from connector.source.envelope.column_records import JSON_SERIALIZERS, EventSerializers
from connector.source.envelope.event_format import EventFormat
from connector.source.envelope.row_schema import describe_key
from serde.avro.emitted_schema import avro_schema
from serde.avro.serializer import AvroSerializer
from serde.emit.envelope import SourceInfo
from serde.emit.name_adjustment import adjust_field_name
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct
from serde.emit.type_mapping import HandlingModes
from serde.wire_format import ColumnSerializer

pytestmark = pytest.mark.spark
ORIGIN = SourceInfo("0.1", "p", "c", "db", "t", 1_700_000_000_000_000_000, "false", 5, None, 2)
PLAINS = {
    "boolean": "true",
    "int": "-7",
    "long": "-9223372036854775808L",
    "float": "float(0.5)",
    "double": "double('-Infinity')",
    "string": "'ü😀'",
    "uuid": "'0f5c4b9a-1f1c-4d3e-8f1b-000000000001'",
    "variant": "parse_json('{\"a\":[1,null]}')",
    "date": "date'1969-12-30'",
    "time": "86399999999L",
    "timestamp": "timestamp_ntz'1969-12-31 23:59:59.999999'",
    "timestamptz": "timestamp'2024-05-04 23:02:03.4+01:00'",
    "timestamp_ns": "-1L",
    "timestamptz_ns": "-1L",
    "fixed": "X'fbff'",
    "binary": "X''",
}


@pytest.fixture(scope="module", autouse=True)
def _settled(spark: SparkSession) -> None:
    json_values.configure_session(spark)


def registered(wire: EventFormat) -> EventSerializers:
    """Both sides in Avro, as a registry with ids 1 and 2 would have it."""
    key_text, value_text = (
        json.dumps(avro_schema(schema)) for schema in (wire.key_schema, wire.value_schema) if schema
    )
    return EventSerializers(AvroSerializer(key_text, 1), AvroSerializer(value_text, 2, wire.constant))


def decoded(avro: ColumnSerializer | None, message: bytes | None) -> Any:
    assert isinstance(avro, AvroSerializer)
    if message is None:
        return None
    assert message[:5] == avro.head
    source = io.BytesIO(message[5:])
    # Logical types stay numbers and bytes, as in the JSON.
    schema = json.loads(avro.text, object_hook=lambda made: {k: v for k, v in made.items() if k != "logicalType"})
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    assert not source.read()
    return value


def as_json(value: Any) -> Any:
    """A value of Avro in the form that JSON has for it: bytes in base64, entries of maps as pairs, NaN as text."""
    if isinstance(value, dict):
        if value.keys() == {"key", "value"}:
            return [as_json(value["key"]), as_json(value["value"])]
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(value)]
    return value


def renamed(envelope: Any, modes: HandlingModes) -> Any:
    """An envelope in JSON with the names that Avro gives to fields which no mode has adjusted."""
    if modes.fields != "none":
        return envelope

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {adjust_field_name(name, "avro"): plain(item) for name, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return {**envelope, "before": plain(envelope["before"]), "after": plain(envelope["after"])}


@pytest.mark.parametrize(
    "modes",
    [
        HandlingModes(),
        HandlingModes("string", "isostring", "hex", "avro", "avro"),
        HandlingModes("double", "connect", "base64", "avro_unicode", "avro_unicode"),
        HandlingModes("precise", "nanoseconds", "base64-url-safe"),
    ],
    ids=lambda modes: modes.times,
)
def test_avro_says_what_json_says(spark: SparkSession, modes: HandlingModes) -> None:
    """Every type in every mode, nested and null, tombstones and numbered events: Avro holds what the JSON holds."""
    row = RowStruct(
        (
            RowField("id", Primitive("long"), False),
            *(RowField(f"{name} 1.x", Primitive(name)) for name in PLAINS),
            RowField("small", Primitive("decimal", 9, 2)),
            RowField("wide", Primitive("decimal", 38, 10)),
            RowField("pairs", RowMap(Primitive("date"), RowStruct((RowField("d", Primitive("decimal", 5, 2)),)))),
            RowField("texts", RowMap(Primitive("string"), Primitive("binary"))),
            RowField(
                "list",
                RowList(
                    RowStruct((RowField("a.b", Primitive("timestamp")), RowField("c", RowList(Primitive("string")))))
                ),
            ),
            RowField("plain", RowList(RowStruct((RowField("a b", Primitive("int")),)))),
        )
    )
    columns = [f"{sql} AS `{name} 1.x`" for name, sql in PLAINS.items()]
    columns += ["-1.25BD AS small", "cast(-12345678901234567890.5 AS DECIMAL(38, 10)) AS wide"]
    columns += ["map(date'1970-01-03', named_struct('d', 1.25BD), date'1970-01-04', null) AS pairs"]
    columns += ["map('k', X'00', '', null) AS texts"]
    columns += ["array(named_struct('a.b', timestamp_ntz'1970-01-01 00:00:01', 'c', array('', null)), null) AS list"]
    columns += ["array(named_struct('a b', 1)) AS plain"]
    whole = f"SELECT struct(id, {', '.join(columns)}) AS s FROM range(3)"
    bare = [f"IF(id >= 0, NULL, {c.rpartition(' AS ')[0]}) AS {c.rpartition(' AS ')[2]}" for c in columns]
    empty = f"SELECT struct(id, {', '.join(bare)}) AS s FROM range(3, 6)"
    images = spark.sql(f"{whole} UNION ALL {empty}").coalesce(1)
    before = F.when(F.col("s.id") % 3 != 0, F.col("s"))
    after = F.when(F.col("s.id") % 3 != 1, F.col("s"))
    op = F.when(before.isNull(), "c").when(after.isNull(), "d").otherwise("u")
    nothing, order = F.lit(None).cast("long"), F.col("s.id") + 1
    frame = images.select(
        op.alias("op"),
        before.alias("before"),
        after.alias("after"),
        nothing.alias("row_id"),
        order.alias("total_order"),
    )
    wire = EventFormat(
        "p-1.t", row, describe_key(row, ("id",)), modes, ORIGIN, ordered=True, key_schemas=False, value_schemas=False
    )
    avro = registered(wire)
    found, expected = (
        to_kafka_records(frame, wire, avro, reads=False).collect(),
        to_kafka_records(frame, wire, JSON_SERIALIZERS, reads=False).collect(),
    )
    assert len(found) == 8
    for ours, plain in zip(found, expected, strict=True):
        assert as_json(decoded(avro.key, ours.key)) == json.loads(plain.key)
        value = as_json(decoded(avro.value, ours.value))
        assert value == (None if plain.value is None else renamed(json.loads(plain.value), modes))
    # One side alone may be Avro.
    mixed = to_kafka_records(frame, wire, EventSerializers(value=avro.value), reads=False).collect()
    assert [(r.key, r.value) for r in mixed] == [(p.key, m.value) for p, m in zip(expected, found, strict=True)]


def test_a_key_with_a_null_is_refused(spark: SparkSession) -> None:
    """No Avro key says that a column of it is null, where its schema allows that too: in reads and in changes."""
    row = RowStruct((RowField("id", Primitive("long")),))
    image = "STRUCT<id: BIGINT>"
    frame = spark.createDataFrame(
        [("c", None, (None,), None)], f"op STRING, before {image}, after {image}, row_id BIGINT"
    )
    wire = EventFormat("p.t", row, describe_key(row, ("id",)), HandlingModes(), ORIGIN)
    avro = registered(wire)
    for serializers in (avro, attrs.evolve(avro, value=None)):
        for reads in (False, True):
            with pytest.raises(FatalError, match="null in column id"), translate_read_errors("db.t", 5):
                to_kafka_records(frame, wire, serializers, reads=reads).collect()


def test_a_change_of_key_and_records_without_key(spark: SparkSession) -> None:
    """Headers hold the keys as JSON, as Connect's own converter writes them; without key there is no key message."""
    row = RowStruct((RowField("id", Primitive("long"), False),))
    image = "STRUCT<id: BIGINT>"
    frame = spark.createDataFrame([("u", (2,), (3,), None)], f"op STRING, before {image}, after {image}, row_id BIGINT")
    wire = EventFormat("p.t", row, describe_key(row, ("id",)), HandlingModes(), ORIGIN, moves=True)
    avro = registered(wire)
    found = to_kafka_records(frame, wire, avro, reads=False).collect()
    assert [(decoded(avro.key, r.key), decoded(avro.value, r.value)) for r in found[1:2]] == [({"id": 2}, None)]
    assert [(h.key, bytes(h.value)) for r in found for h in r.headers] == [
        ("__debezium.newkey", b'{"id":3}'),
        ("__debezium.newkey", b'{"id":3}'),
        ("__debezium.oldkey", b'{"id":2}'),
    ]
    bare = attrs.evolve(wire, key=None, moves=False)
    assert [r.key for r in to_kafka_records(frame, bare, avro, reads=False).collect()] == [None]


def test_a_null_that_the_schema_has_not_is_named(spark: SparkSession) -> None:
    """A null in a column that may have none ends the table with the column's name."""
    row = RowStruct((RowField("id", Primitive("long"), False),))
    image = "STRUCT<id: BIGINT>"
    frame = spark.createDataFrame(
        [("c", None, (None,), None)], f"op STRING, before {image}, after {image}, row_id BIGINT"
    )
    wire = EventFormat("p.t", row, None, HandlingModes(), ORIGIN)
    avro = AvroSerializer(json.dumps(avro_schema(wire.value_schema)), 2, wire.constant)
    said = r"table t, snapshot 5: a row cannot be written as Avro: field id: a null where the schema has none"
    with pytest.raises(FatalError, match=said), translate_read_errors("t", 5):
        to_kafka_records(frame, wire, EventSerializers(value=avro), reads=False).collect()
