"""Columns -> JSON text, key and envelope by Spark: every value exactly as Connect's JsonConverter would write it."""

from __future__ import annotations

import base64
import json
import math
import random
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from connector.errors import FatalError
from connector.source.changes.read_errors import translate_read_errors
from connector.source.destinations.kafka import order_columns, partition_columns, to_kafka_records
from connector.source.envelope import json_values as values
from connector.source.envelope.column_records import JSON_SERIALIZERS
from connector.source.envelope.event_format import EventFormat
from connector.source.envelope.record_keys import events_per_change
from connector.source.envelope.row_schema import ROW_ID_KEY, describe_key
from connector.source.envelope.transaction_order import number_changes
from serde.emit.envelope import SourceInfo
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct, RowType
from serde.emit.type_mapping import HandlingModes
from serde.formats import make_deserializer
from tests.harness.tiers import tiered

pytestmark = pytest.mark.spark

LONGS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, -32768, -32769, 10**17, -(10**17), 10**18 - 1, 1 - 10**18]
WIDE = [2**63, -(2**63), 2**64, -(2**64), 2**64 - 1, -(2**64) - 1, 10**38 - 1, 1 - 10**38, 2**126, -(2**126), 2**71]
ORIGIN = SourceInfo("0.1", "p", "c", "db", "t", 1_700_000_000_000_000_000, "false", 5, None, 2)


@pytest.fixture(scope="module", autouse=True)
def _settled(spark: SparkSession) -> None:
    values.configure_session(spark)


DEFAULTS = HandlingModes()
STRUCTURED = {"times": "structured"}
DAY = {"year": 1969, "month": 12, "day": 30}
CLOCK = {"hour": 23, "minute": 59, "second": 59, "nanos": 999999000}
REFUSED = r"table db\.t, snapshot 5: .*(null in column|no _row_id)"


def text(frame: DataFrame, kind: RowType, modes: HandlingModes = DEFAULTS) -> list[Any]:
    """The JSON value of column `v`, row by row."""
    made = frame.select(values.json_text(F.struct("v"), RowStruct((RowField("v", kind),)), modes).alias("j"))
    return [json.loads(row.j, parse_float=str)["v"] for row in made.collect()]


DECIMALS = [(18, 0), (18, 18), (18, 4), (38, 0), (38, 10), (38, 38)]


@pytest.mark.parametrize(("precision", "scale"), tiered(DECIMALS, [(18, 4), (38, 38)]))
def test_decimals_are_their_shortest_twos_complement(spark: SparkSession, precision: int, scale: int) -> None:
    """A decimal is the base64 of BigInteger.toByteArray of its unscaled number, whatever its size, sign and scale."""
    rng = random.Random(5)
    numbers = LONGS if precision == 18 else [*LONGS, *WIDE, *(rng.randrange(-(10**38), 10**38) for _ in range(60))]
    exact = [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in numbers]
    schema = T.StructType([T.StructField("v", T.DecimalType(precision, scale))])
    frame = spark.createDataFrame([(d,) for d in exact], schema)
    kind = Primitive("decimal", precision, scale)
    for number, encoded in zip(numbers, text(frame, kind), strict=True):
        raw = base64.b64decode(encoded)
        assert int.from_bytes(raw, "big", signed=True) == number
        assert len(raw) == (number if number >= 0 else ~number).bit_length() // 8 + 1
    assert text(frame, kind, HandlingModes("string")) == [f"{d:f}" for d in exact]


@pytest.mark.parametrize(
    ("sql", "kind", "modes", "expected"),
    [
        ("date'1969-12-30'", "date", {}, -2),
        ("date'1969-12-30'", "date", {"times": "isostring"}, "1969-12-30Z"),
        ("timestamp_ntz'1969-12-31 23:59:59.999999'", "timestamp", {}, -1),
        ("timestamp_ntz'1969-12-31 23:59:59.999999'", "timestamp", {"times": "connect"}, -1),
        ("timestamp_ntz'1969-12-31 23:59:59.999999'", "timestamp", {"times": "nanoseconds"}, -1000),
        ("timestamp_ntz'0001-01-01 00:00:00'", "timestamp", {"times": "isostring"}, "0001-01-01T00:00:00.000000Z"),
        ("timestamp'2024-05-04 23:02:03.4+01:00'", "timestamptz", {}, "2024-05-04T22:02:03.400000Z"),
        ("timestamp_micros(-62198755200000001)", "timestamptz", {}, "-0002-12-31T23:59:59.999999Z"),
        ("timestamp_micros(253402300800000000)", "timestamptz", {}, "+10000-01-01T00:00:00.000000Z"),
        ("-1L", "timestamp_ns", {}, -1),
        ("-1L", "timestamp_ns", {"times": "connect"}, -1),
        ("-1L", "timestamp_ns", {"times": "microseconds"}, -1),
        ("-1L", "timestamptz_ns", {}, "1969-12-31T23:59:59.999999999Z"),
        ("1700000000123456789L", "timestamp_ns", {"times": "isostring"}, "2023-11-14T22:13:20.123456789Z"),
        ("86399999999L", "time", {}, 86399999999),
        ("86399999999L", "time", {"times": "connect"}, 86399999),
        ("86399999999L", "time", {"times": "isostring"}, "23:59:59.999999Z"),
        ("date'1969-12-30'", "date", STRUCTURED, {**DAY, "specialValue": None}),
        ("86399999999L", "time", STRUCTURED, {**CLOCK, "precision": 6}),
        ("cast(null AS BIGINT)", "time", STRUCTURED, None),
        (
            "timestamp_ntz'1969-12-30 23:59:59.999999'",
            "timestamp",
            STRUCTURED,
            {**DAY, **CLOCK, "specialValue": None, "precision": 6},
        ),
        (
            "timestamp'1969-12-31 00:59:59.999999+01:00'",
            "timestamptz",
            STRUCTURED,
            {**DAY, **CLOCK, "offsetSeconds": 0, "zoneId": None, "specialValue": None, "precision": 6},
        ),
        (
            "-86400000000001L",
            "timestamp_ns",
            STRUCTURED,
            {**DAY, **CLOCK, "nanos": 999999999, "specialValue": None, "precision": 9},
        ),
        ("X'fbff'", "binary", {}, "+/8="),
        ("X'fbff'", "binary", {"binaries": "base64"}, "+/8="),
        ("X'fbff'", "fixed", {"binaries": "base64-url-safe"}, "-_8="),
        ("X'fbff'", "binary", {"binaries": "hex"}, "fbff"),
        ("unhex(repeat('41', 100))", "binary", {"binaries": "base64"}, base64.b64encode(b"A" * 100).decode()),
        ("double('NaN')", "double", {}, "NaN"),
        ("double('-Infinity')", "double", {}, "-Infinity"),
        ("float('Infinity')", "float", {}, "Infinity"),
        ("5e-324D", "double", {}, "4.9E-324"),
        ("float(0.1)", "float", {}, "0.1"),
        ("'ü\\u0001\"/\\\\ \\u2028 😀'", "string", {}, 'ü\u0001"/\\ \u2028 😀'),
        ("''", "string", {}, ""),
        ("true", "boolean", {}, True),
        ("9223372036854775807L", "long", {}, 9223372036854775807),
        ("parse_json('{\"a\":[1,2.50,null]}')", "variant", {}, '{"a":[1,2.5,null]}'),
        ("cast(null AS BIGINT)", "time", {}, None),
    ],
    ids=str,
)
def test_values_are_written_as_debezium_does(
    spark: SparkSession, sql: str, kind: str, modes: dict[str, Any], expected: object
) -> None:
    """Each type in each mode gives the very value that Debezium's connectors give."""
    assert text(spark.sql(f"SELECT {sql} AS v"), Primitive(kind), HandlingModes(**modes)) == [expected]


def test_nesting_of_any_depth_is_written(spark: SparkSession) -> None:
    """Lists, structs and maps hold converted values; a map whose keys are no texts is an array of pairs."""
    inner = RowStruct((RowField("d", Primitive("decimal", 5, 2)), RowField("when", Primitive("date"))))
    kind = RowStruct(
        (
            RowField("pairs", RowMap(Primitive("int"), inner)),
            RowField("texts", RowMap(Primitive("string"), Primitive("binary"))),
            RowField("list", RowList(inner)),
            RowField("deep", RowList(RowMap(Primitive("date"), RowList(Primitive("string"))))),
        )
    )
    value = "named_struct('d', 1.25BD, 'when', date'1970-01-02')"
    frame = spark.sql(
        f"SELECT named_struct('pairs', map(1, {value}, 2, null), 'texts', map('k\"', X'00'), 'list', array({value}, "
        "null), 'deep', array(map(date'1970-01-03', array('x', null)))) AS v"
    )
    made = {"d": "fQ==", "when": 1}
    assert text(frame, kind) == [
        {"pairs": [[1, made], [2, None]], "texts": {'k"': "AA=="}, "list": [made, None], "deep": [[[2, ["x", None]]]]}
    ]


def wire(**changed: Any) -> EventFormat:
    row = RowStruct((RowField("id", Primitive("long"), False), RowField("v", Primitive("double"))))
    made = EventFormat(
        "p.db.t", row, describe_key(row, ("id",)), HandlingModes(), ORIGIN, key_schemas=False, value_schemas=False
    )
    return attrs.evolve(made, **changed)


def changes(spark: SparkSession) -> DataFrame:
    """An update, a change of key, a delete and a create."""
    image = "STRUCT<id: BIGINT, v: DOUBLE>"
    rows = [("u", (1, 1.0), (1, math.nan), 9), ("u", (2, 2.0), (3, 2.0), 9), ("d", (4, 4.0), None, 9)]
    rows.append(("c", None, (5, None), 9))  # type: ignore[arg-type]
    return spark.createDataFrame(rows, f"op STRING, before {image}, after {image}, row_id BIGINT").coalesce(1)


def brief(frame: DataFrame) -> list[tuple[Any, ...]]:
    """key, op (None: a tombstone) and header names of each record, in order."""
    found = []
    for row in frame.collect():
        headers = [(h.key, bytes(h.value).decode()) for h in row.asDict().get("headers") or ()]
        found.append((row.key, json.loads(row.value)["op"] if row.value else None, headers))
    return found


def test_a_change_of_key_is_delete_tombstone_create(spark: SparkSession) -> None:
    """Where keys can change, the old key leaves with a tombstone and the new one arrives, each naming the other."""
    assert brief(to_kafka_records(changes(spark), wire(moves=True), JSON_SERIALIZERS, reads=False)) == [
        ('{"id":1}', "u", []),
        ('{"id":2}', "d", [("__debezium.newkey", '{"id":3}')]),
        ('{"id":2}', None, [("__debezium.newkey", '{"id":3}')]),
        ('{"id":3}', "c", [("__debezium.oldkey", '{"id":2}')]),
        ('{"id":4}', "d", []),
        ('{"id":4}', None, []),
        ('{"id":5}', "c", []),
    ]


def test_both_events_of_a_change_of_key_are_numbered(spark: SparkSession) -> None:
    """A change of key takes two numbers, its delete and its create; each holds the image of its own key alone."""
    made = wire(moves=True, ordered=True, tombstones=False)
    with number_changes(changes(spark), order_columns(made), partition_columns(made), events_per_change(made)) as found:
        assert found.count == 5
        values = [
            json.loads(r.value) for r in to_kafka_records(found.changes, made, JSON_SERIALIZERS, reads=False).collect()
        ]
    ids = [[image and image["id"] for image in (value["before"], value["after"])] for value in values]
    told = [(v["op"], v["transaction"]["total_order"], *pair) for v, pair in zip(values, ids, strict=True)]
    assert told == [("u", 1, 1, 1), ("d", 2, 2, None), ("c", 3, None, 3), ("d", 4, 4, None), ("c", 5, None, 5)]


def test_tombstones_keys_and_operations_follow_the_settings(spark: SparkSession) -> None:
    """No tombstones when switched off or without key; skipped operations give nothing; a row id can be the key."""
    frame = changes(spark)
    plain = [
        (k, op) for k, op, _ in brief(to_kafka_records(frame, wire(tombstones=False), JSON_SERIALIZERS, reads=False))
    ]
    assert plain == [('{"id":1}', "u"), ('{"id":3}', "u"), ('{"id":4}', "d"), ('{"id":5}', "c")]
    assert [op for _, op, _ in brief(to_kafka_records(frame, wire(key=None), JSON_SERIALIZERS, reads=False))] == [
        "u",
        "u",
        "d",
        "c",
    ]
    assert [
        op for _, op, _ in brief(to_kafka_records(frame, wire(skipped=frozenset("ud")), JSON_SERIALIZERS, reads=False))
    ] == ["c"]
    by_row = wire(key=ROW_ID_KEY, tombstones=False)
    assert {k for k, _, _ in brief(to_kafka_records(frame, by_row, JSON_SERIALIZERS, reads=False))} == {'{"_row_id":9}'}


@pytest.mark.parametrize("reads", [False, True])
def test_a_record_key_with_a_null_is_refused(spark: SparkSession, reads: bool) -> None:
    """Rows that nothing tells apart do not share a record key, whichever part of it is null."""
    image = "STRUCT<id: BIGINT, v: DOUBLE>"
    shape = f"op STRING, before {image}, after {image}, row_id BIGINT"
    nameless = spark.createDataFrame([("r", None, (None, 1.0), None)], shape)
    half = spark.createDataFrame([("r", None, (1, None), None)], shape)
    both = wire(key=describe_key(wire().row, ("id", "v")))
    for frame, made in [(nameless, wire()), (half, both), (nameless, wire(key=ROW_ID_KEY))]:
        with pytest.raises(FatalError, match=REFUSED), translate_read_errors("db.t", 5):
            to_kafka_records(frame, made, JSON_SERIALIZERS, reads=reads).collect()
    arrives = spark.createDataFrame([("u", (1, 1.0), (None, 1.0), None)], shape)
    with pytest.raises(FatalError, match=REFUSED), translate_read_errors("db.t", 5):
        to_kafka_records(arrives, wire(moves=True), JSON_SERIALIZERS, reads=False).collect()


def test_both_zeros_are_one_key(spark: SparkSession) -> None:
    """Spark pairs rows by keys to which 0.0 and -0.0 are one: so they are in records."""
    rows = [("c", None, (1, -0.0), None), ("c", None, (1, 0.0), None)]
    image = "STRUCT<id: BIGINT, v: DOUBLE>"
    frame = spark.createDataFrame(rows, f"op STRING, before {image}, after {image}, row_id BIGINT")
    made = to_kafka_records(frame, wire(key=describe_key(wire().row, ("v",))), JSON_SERIALIZERS, reads=False).collect()
    assert [r.key for r in made] == ['{"v":0.0}'] * 2


def test_our_reader_takes_what_is_written(spark: SparkSession) -> None:
    """Envelopes and keys with schema blocks come back through our own decoder as the rows they were."""
    frame = changes(spark)
    made = (
        to_kafka_records(frame, wire(key_schemas=True, value_schemas=True), JSON_SERIALIZERS, reads=False)
        .filter("value IS NOT NULL")
        .toArrow()
    )
    decoded = make_deserializer("json-schema").decode(made["value"].combine_chunks().cast(pa.binary()), "value")
    assert not decoded.faults
    (block,) = decoded.blocks
    assert block.name == "p.db.t.Envelope"
    assert block.fields.field("after").to_pylist()[1:] == [{"id": 3, "v": 2.0}, None, {"id": 5, "v": None}]
    keys = make_deserializer("json-schema").decode(made["key"].combine_chunks().cast(pa.binary()), "key")
    assert keys.blocks[0].fields.to_pylist() == [{"id": 1}, {"id": 3}, {"id": 4}, {"id": 5}]


def test_events_are_numbered_in_one_order(spark: SparkSession) -> None:
    """Numbers run from 1 without gaps in the wanted order, however many partitions there are, each time the same."""
    frame = spark.range(5000, numPartitions=7).selectExpr("(id * 7919) % 5000 AS id")
    by_id = [F.col("id")]
    for _ in range(2):
        with number_changes(frame, by_id, by_id) as found:
            rows = found.changes.collect()
        assert found.count == 5000
        assert all(row.total_order == row.id + 1 for row in rows)
    with number_changes(frame.filter("false"), by_id, by_id) as nothing:
        assert (nothing.count, nothing.changes.collect()) == (0, [])


def test_events_that_differ_in_microseconds_alone_have_an_order(spark: SparkSession) -> None:
    """Rows without a key are numbered alike in every replay, whichever task read them first."""
    made = wire(key=None)
    image = "STRUCT<at: TIMESTAMP_NTZ, zoned: TIMESTAMP>"
    early, late = "2020-01-01 00:00:00.000123", "2020-01-01 00:00:00.000124"
    pairs = [(early, late), (late, early), (early, early)]
    texts = spark.createDataFrame(pairs, "at STRING, zoned STRING").selectExpr(
        "'c' AS op",
        f"CAST(NULL AS {image}) AS before",
        "STRUCT(CAST(at AS TIMESTAMP_NTZ) AS at, CAST(zoned AS TIMESTAMP) AS zoned) AS after",
    )
    orders = [
        [row.after for row in texts.orderBy(place).sort(*order_columns(made)).collect()] for place in ("after", "op")
    ]
    assert orders[0] == orders[1]
    assert len({row.whole for row in texts.select(order_columns(made)[-1].alias("whole")).collect()}) == 3
