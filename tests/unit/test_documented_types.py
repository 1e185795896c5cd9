"""Types, special values and messages that Debezium's pages list for databases that cannot be run here -> columns.

By page and section, "connectors/<name>", of the documentation of 3.7; what each gives with a schema unless said.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from serde.connect.text_columns import find_text_types
from serde.connect.values.temporal import parse_zoned_timestamp
from serde.events.images.unavailable_value import PLACEHOLDER, find_unavailable, use_known_placeholder
from serde.events.schema_changes import read_table_changes
from serde.formats import make_deserializer
from tests.unit import sink_plans
from tests.unit.json_messages import framed
from tests.unit.local_sink import local_sink

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
_SCALED = [
    {"type": "int32", "field": "scale", "optional": False},
    {"type": "bytes", "field": "value", "optional": False},
]
_PARTS = ("years", "months", "days", "hours", "minutes", "seconds", "nanos", "precision")
_DURATION = [{"type": "int32", "field": part, "optional": True} for part in _PARTS]
_DECIMAL = {"parameters": {"scale": "2", "connect.decimal.precision": "10"}}
_ARRAY = {"items": {"type": "int64", "optional": True}}
_MAP = {"keys": {"type": "string"}, "values": {"type": "int32", "optional": True}}

# (Connect type, schema name, more of the schema, value in JSON, value of the column)
Case = tuple[str, str | None, dict[str, Any], Any, Any]
ORACLE: dict[str, Case] = {
    # "Numeric types", "Temporal types", "JSON types", "XML types", "ROWID types".
    "NUMBER": ("struct", DATA + "VariableScaleDecimal", {"fields": _SCALED}, {"scale": 2, "value": "AeI6"}, "1234.50"),
    "NUMBER, hundreds": (
        "struct",
        DATA + "VariableScaleDecimal",
        {"fields": _SCALED},
        {"scale": -2, "value": "Cg=="},
        "1000",
    ),
    "NUMBER(20, -2)": (
        "bytes",
        CONNECT + "Decimal",
        {"parameters": {"scale": "-2", "connect.decimal.precision": "20"}},
        "Cg==",
        Decimal(1000),
    ),
    "NUMBER(10, 2)": ("bytes", CONNECT + "Decimal", _DECIMAL, "AeI6", Decimal("1234.50")),
    "NUMBER, decimal.handling.mode=string": ("string", None, {}, "1234.50", "1234.50"),
    "NUMBER, decimal.handling.mode=double": ("double", None, {}, 1234.5, 1234.5),
    "NUMBER(1)": ("int8", None, {}, 1, 1),
    "DATE": ("int64", TIME + "Timestamp", {}, 1522108800000, datetime(2018, 3, 27)),
    "DATE, time.precision.mode=connect": ("int32", CONNECT + "Date", {}, 17617, date(2018, 3, 27)),
    "DATE, time.precision.mode=isostring": (
        "string",
        TIME + "IsoTimestamp",
        {},
        "2018-03-27T00:00:00Z",
        datetime(2018, 3, 27),
    ),
    "TIMESTAMP WITH TIME ZONE": (
        "string",
        TIME + "ZonedTimestamp",
        {},
        "2018-03-27T02:00:00.5+02:00",
        datetime(2018, 3, 27, microsecond=500000, tzinfo=UTC),
    ),
    "INTERVAL DAY TO SECOND, as the page has its type": ("double", TIME + "MicroDuration", {}, 1.5e6, 1.5e6),
    "INTERVAL DAY TO SECOND": ("int64", TIME + "MicroDuration", {}, -93784567890, -93784567890),
    "INTERVAL, interval.handling.mode=string": (
        "string",
        TIME + "Interval",
        {},
        "P1Y2M3DT4H5M6.78S",
        "P1Y2M3DT4H5M6.78S",
    ),
    "INTERVAL YEAR TO MONTH, time.precision.mode=structured": (
        "struct",
        TIME + "StructuredDuration",
        {"fields": _DURATION},
        dict(zip(_PARTS, (-1, -2, 0, 0, 0, 0, 0, None), strict=True)),
        "P-1Y-2M0DT0H0M0S",
    ),
    "INTERVAL DAY TO SECOND, time.precision.mode=structured": (
        "struct",
        TIME + "StructuredDuration",
        {"fields": _DURATION},
        dict(zip(_PARTS, (0, 0, 3, 4, 5, 6, 780_000_000, 2), strict=True)),
        "P0Y0M3DT4H5M6.78S",
    ),
    "JSON": ("string", DATA + "Json", {}, '{"a":1}', '{"a":1}'),
    "XMLTYPE": ("string", DATA + "Xml", {}, "<a/>", "<a/>"),
    "ROWID": ("string", None, {}, "AAASgjAAMAAAACnAAA", "AAASgjAAMAAAACnAAA"),
}
OTHERS: dict[str, Case] = {
    # "Temporal values" with time.precision.mode=connect of SQL Server, Db2 and Vitess, whose pages have a long there.
    "TIME of SQL Server and Db2, connect": ("int64", CONNECT + "Time", {}, 3600001, time(1, 0, 0, 1000)),
    "TIME(3) of SQL Server and Db2": ("int32", TIME + "Time", {}, 3600001, time(1, 0, 0, 1000)),
    "DECFLOAT of Db2": ("bytes", CONNECT + "Decimal", _DECIMAL, "AeI6", Decimal("1234.50")),
    "DATETIME of Informix": ("int64", TIME + "Timestamp", {}, 1529507596000, datetime(2018, 6, 20, 15, 13, 16)),
    "TINYINT of Informix": ("int16", None, {}, 255, 255),
    "BIGINT UNSIGNED of Vitess": (
        "bytes",
        CONNECT + "Decimal",
        {"parameters": {"scale": "0"}},
        base64.b64encode((2**64 - 1).to_bytes(9, "big")).decode(),
        Decimal(2**64 - 1),
    ),
    "YEAR of Vitess": ("int32", TIME + "Year", {}, 2024, 2024),
    "SET of Vitess": ("string", DATA + "EnumSet", {"parameters": {"allowed": "a,b"}}, "a,b", "a,b"),
    "zero date of Vitess, isostring": ("string", None, {}, "0000-00-00", "0000-00-00"),
    "TIMESTAMP of Spanner": ("string", None, {}, "2023-01-01T00:00:00.123456789Z", "2023-01-01T00:00:00.123456789Z"),
    "ARRAY of Spanner": ("array", None, _ARRAY, [1, None], [1, None]),
    "FLOAT32 of Spanner": ("float", None, {}, 0.5, 0.5),
    "map of Cassandra": ("map", None, _MAP, {"a": 1}, [("a", 1)]),
    "time of Cassandra": ("int64", None, {}, 36_000_123_456_789, 36_000_123_456_789),
    "varint of Cassandra": ("bytes", CONNECT + "Decimal", {"parameters": {"scale": "0"}}, "ZA==", Decimal(100)),
    "duration of Cassandra": ("int64", TIME + "NanoDuration", {}, 5, 5),
}


@pytest.mark.parametrize("case", [*ORACLE.values(), *OTHERS.values()], ids=[*ORACLE, *OTHERS])
def test_documented_types(case: Case) -> None:
    """A value of each documented type and mode is what the database had, and no type is taken for a newer one."""
    kind, name, more, value, expected = case
    field = {"type": kind, "optional": True, "field": "f", **({"name": name} if name else {}), **more}
    raw = pa.array([framed([field], {"f": value})], pa.binary())
    decoded = make_deserializer("auto").decode(raw, "VALUE_CONVERTER")
    (block,) = decoded.blocks
    assert not decoded.faults and not block.unknown
    assert block.fields.field("f")[0].as_py() == expected


@pytest.mark.parametrize(
    ("kind", "name", "value", "connector", "text"),
    [
        # Vitess page, "Temporal types": TIME is MySQL's.
        ("int64", TIME + "MicroTime", -3_020_399_000_000, "vitess", "-838:59:59.000000"),
        ("int64", CONNECT + "Time", -3_020_399_000, "vitess", "-838:59:59.000"),
        ("int64", CONNECT + "Time", 3_600_001, "vitess", "01:00:00.001"),
        ("int32", CONNECT + "Time", 3_600_001, "vitess", "01:00:00.001"),
        # TiDB (Debezium 3.7's connector of what TiCDC writes) has MySQL's TIME.
        ("int64", TIME + "MicroTime", -3_020_399_000_000, "tidb", "-838:59:59.000000"),
        # Db2 page, "Temporal types": TIME(7).
        ("int64", TIME + "NanoTime", 36_000_123_456_700, "db2", "10:00:00.123456700"),
        ("int64", TIME + "NanoTimestamp", 1_700_000_000_123_456_700, "db2", "2023-11-14T22:13:20.123456700"),
    ],
)
def test_documented_times_that_iceberg_has_not(kind: str, name: str, value: int, connector: str, text: str) -> None:
    """A column whose type holds more than Iceberg's is text for each of the connector's events."""
    fields = [{"type": "int64", "field": "id"}, {"type": kind, "name": name, "optional": True, "field": "t"}]
    run = attrs.evolve(sink_plans.run(framed(fields, {"id": 1, "t": value})), connector=connector)
    (need,) = decode(run, sink_plans.plan()).needs
    assert need.row.field("t").type == pa.string() and name in find_text_types(connector, frozenset())
    table = sink_plans.append(0, {"id": pa.int64(), "t": pa.string()})
    assert sink_plans.rows(decode(run, sink_plans.plan(table))) == [{"id": 1, "t": text}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Vitess before 3.6 (debezium/dbz#2063): TIMESTAMP as MySQL writes it, in UTC.
        ("2020-02-13 01:02:03", "2020-02-13T01:02:03+00:00"),
        ("2020-02-13 01:02:03.123456", "2020-02-13T01:02:03.123456+00:00"),
        # CockroachDB before 3.6 (debezium/dbz#2147).
        ("2020-02-13 01:02:03.5+00", "2020-02-13T01:02:03.500000+00:00"),
        ("2020-02-13 01:02:03+05:30", "2020-02-12T19:32:03+00:00"),
        ("2020-02-13 01:02:03Z", "2020-02-13T01:02:03+00:00"),
        ("0000-00-00 00:00:00", None),
        ("2020-02-13 25:02:03", None),
    ],
)
def test_instants_that_are_no_iso_text(text: str, expected: str | None) -> None:
    """Beside others of their column, which they do not spoil; what is no instant is a fault."""
    others = pa.array(["2024-01-01T00:00:00Z", text, None])
    made, bad = parse_zoned_timestamp(others)
    found = [None if one is None else one.isoformat() for one in made.to_pylist()]
    assert found == ["2024-01-01T00:00:00+00:00", expected, None]
    assert (bad is None) == (expected is not None)


FORMS = {
    "bytes": lambda word: base64.b64encode(word).decode(),
    "base64": lambda word: base64.b64encode(word).decode(),
    "base64-url-safe": lambda word: base64.urlsafe_b64encode(word).decode(),
    "hex": bytes.hex,
}


@pytest.mark.parametrize("mode", FORMS)
@pytest.mark.parametrize("word", [PLACEHOLDER, "~~~nicht da???>>>"])
def test_unavailable_lobs_in_each_binary_mode(mode: str, word: str) -> None:
    """Oracle page, "Binary and Character LOB types": an unchanged BLOB is the placeholder, as the mode writes it."""
    column = pa.array([FORMS[mode](word.encode()), "00ff", None], pa.string())
    found = find_unavailable(use_known_placeholder(column, word))
    assert found is not None and found.tolist() == [True, False, False]


def test_unchanged_lobs_keep_their_values(tmp_path: Path) -> None:
    """Oracle's update of another column leaves its CLOB, BLOB (as hex), JSON and XML as they were."""
    sink = local_sink(tmp_path, ["topics=t"])
    source = {"connector": "oracle", "name": "s", "ts_ms": 1, "db": "X", "schema": "D", "table": "T"}
    row = {"ID": 1, "C": "text", "B": "00ff", "J": '{"a":1}', "N": 1}
    gone = {"C": PLACEHOLDER, "B": PLACEHOLDER.encode().hex(), "J": PLACEHOLDER}
    events = [
        {"op": "c", "before": None, "after": row},
        {"op": "u", "before": {**row, **gone}, "after": {**row, **gone, "N": 2}},
    ]
    key = json.dumps({"ID": 1}).encode()
    sink.process(*((("t", 0), key, json.dumps({**event, "source": source}).encode()) for event in events))
    (found,) = sink.rows("t")
    assert {name: found[name] for name in row} == {**row, "N": 2}


def test_unchanged_max_columns_keep_their_values(tmp_path: Path) -> None:
    """SQL Server since 3.6 (debezium/dbz#1164): what an update leaves of varchar(max) or varbinary(max), nulls too, is
    the placeholder in both images.
    """
    sink = local_sink(tmp_path, ["topics=t"])
    kinds = {"id": "int64", "v": "string", "b": "bytes", "empty": "string", "n": "int64"}
    columns = [{"type": kind, "optional": name != "id", "field": name} for name, kind in kinds.items()]
    image = {"type": "struct", "optional": True, "fields": columns}
    source = {"connector": "sqlserver", "name": "s", "commit_lsn": "00000027:00000758:0005"}
    told = [{"type": "string", "field": name} for name in source]
    around = [{"type": "struct", "field": "source", "fields": told}, {"type": "string", "field": "op"}]
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, *around]
    row = {"id": 1, "v": "text", "b": "AP8=", "empty": None, "n": 1}
    left = {"v": PLACEHOLDER, "b": base64.b64encode(PLACEHOLDER.encode()).decode(), "empty": PLACEHOLDER}
    events = [("c", None, row), ("u", {**row, **left}, {**row, **left, "n": 2})]
    values = [framed(fields, {"before": old, "after": new, "source": source, "op": op}) for op, old, new in events]
    sink.process(*((("t", 0), framed([columns[0]], {"id": 1}), value) for value in values))
    (found,) = sink.rows("t")
    wanted = {"id": 1, "v": "text", "b": bytes([0, 255]), "empty": None, "n": 2}
    assert {name: found[name] for name in row} == wanted


# Oracle page, "Schema change topic": dates in three units, which those of others have not.
SCHEMA_CHANGE: dict[str, Any] = {
    "source": {"version": "3.7.0.Final", "connector": "oracle", "name": "server1", "ts_ms": 1588252618953},
    "ts_ms": 1588252618953,
    "ts_us": 1588252618953987,
    "ts_ns": 1588252618953987512,
    "databaseName": "ORCLPDB1",
    "schemaName": "DEBEZIUM",
    "ddl": 'ALTER TABLE "DEBEZIUM"."CUSTOMERS" RENAME COLUMN "EMAIL" TO "MAIL"',
    "tableChanges": [
        {
            "type": "ALTER",
            "id": '"ORCLPDB1"."DEBEZIUM"."CUSTOMERS"',
            "table": {"primaryKeyColumnNames": ["ID"], "columns": [{"name": "ID"}, {"name": "MAIL"}]},
        }
    ],
}


@pytest.mark.parametrize("lacks", [{}, {"tableChanges": []}, {"ddl": None}, {"schemaName": None, "tableChanges": None}])
def test_schema_changes_of_oracle_make_no_table(lacks: dict[str, Any]) -> None:
    """Whatever of such a message is empty, it is no row; its table's columns are read."""
    outcome = decode(sink_plans.run({**SCHEMA_CHANGE, **lacks}), sink_plans.plan())
    assert (outcome.needs, outcome.faults, outcome.metrics.ignored) == ((), (), 1)
    assert len(list(read_table_changes(SCHEMA_CHANGE))) == 1


NOTIFIED: list[tuple[str, str, dict[str, str]]] = [
    # "Available notifications": both kinds of snapshots, each status.
    ("Initial Snapshot", "COMPLETED", {}),
    ("Initial Snapshot", "IN_PROGRESS", {"data_collections": "table1, table2", "current_collection_in_progress": "x"}),
    ("Initial Snapshot", "TABLE_SCAN_COMPLETED", {"scanned_collection": "table1", "total_rows_scanned": "100"}),
    ("Incremental Snapshot", "PAUSED", {"data_collections": "table1, table2"}),
    ("Incremental Snapshot", "IN_PROGRESS", {"maximum_key": "100", "last_processed_key": "50"}),
    ("Incremental Snapshot", "ABORTED", {}),
]


@pytest.mark.parametrize("dated", ["1695817046353", 1695817046353])
def test_documented_notifications_make_no_table(dated: Any) -> None:
    """Notification page: whatever a message adds, and whether its date is a number or, as there, text."""
    values = [
        {"id": "x", "aggregate_type": kind, "type": status, "additional_data": {"connector_name": "c", **more}}
        for kind, status, more in NOTIFIED
    ]
    outcome = decode(sink_plans.run(*({**value, "timestamp": dated} for value in values)), sink_plans.plan())
    assert (outcome.needs, outcome.faults, outcome.metrics.ignored) == ((), (), len(NOTIFIED))


def test_signals_are_rows_of_their_table(tmp_path: Path) -> None:
    """Signalling page: rows of the table of signals, and what opens and closes the window of a chunk, are changes."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false"])
    source = {"connector": "sqlserver", "name": "s", "ts_ms": 1, "db": "d", "schema": "dbo", "table": "debezium_signal"}
    signals = [
        ("ad-hoc-1", "execute-snapshot", '{"data-collections": ["schema1.table1"], "type": "INCREMENTAL"}'),
        ("w-open", "snapshot-window-open", '{"openWindowTimestamp": "2023-01-01T00:00:00Z"}'),
        ("w-close", "snapshot-window-close", None),
        ("p", "pause-snapshot", None),
    ]
    rows = [dict(zip(("id", "type", "data"), signal, strict=True)) for signal in signals]
    events = [(row["id"], {"op": "c", "before": None, "after": row, "source": source}) for row in rows]
    # incremental.snapshot.watermarking.strategy=insert_delete: the opening row is deleted in place of a closing one.
    events.append(("w-open", {"op": "d", "before": rows[1], "after": None, "source": source}))
    records = ((("t", 0), json.dumps({"id": key}).encode(), json.dumps(value).encode()) for key, value in events)
    assert sink.process(*records).dead_letters == 0
    kept = [rows[0], rows[2], rows[3]]
    assert [{name: row[name] for name in ("id", "type", "data")} for row in sink.rows("t")] == kept


@pytest.mark.parametrize("order", [1, "1"])
def test_enriched_events_are_changes(order: Any) -> None:
    """ "Change data event enrichment" of six pages: dates and places in the transaction are texts there."""
    told = {"id": "00000025:00000d08:0025", "total_order": order, "data_collection_order": order}
    dates = {"ts_ms": "1580390884335", "ts_us": "1580390884335472", "ts_ns": "1580390884335472987"}
    source = {"connector": "sqlserver", "name": "s", "ts_ms": 1}
    event = {"before": None, "after": {"pk": "2", "aa": "1"}, "source": source, "op": "c", **dates, "transaction": told}
    table = sink_plans.append(0, dict.fromkeys(("pk", "aa", "__deleted"), pa.string()))
    outcome = decode(sink_plans.run(event), sink_plans.plan(table))
    assert not outcome.faults and not outcome.needs
    assert [(row["pk"], row["aa"]) for row in sink_plans.rows(outcome)] == [("2", "1")]


DOCUMENT = '{"_id": {"$oid": "596e275826f08b2730779e1f"}, "name": "Anne", "n": {"$numberLong": "5"}}'
MONGO = {"before": None, "updateDescription": None, "op": "c", "ts_ms": 1, "transaction": None}


@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("source", [{}, {"source": None}])
def test_documents_without_source(tmp_path: Path, count: int, source: Any) -> None:
    """MongoDB's envelopes that lost their source are told by `updateDescription`, which its events alone have."""
    sink = local_sink(tmp_path, ["topics=t"])
    events = [
        ({"id": f'"{at}"'}, {**MONGO, "after": DOCUMENT.replace("596e", f"{at:04}"), **source}) for at in range(count)
    ]
    records = [(("t", 0), json.dumps(key).encode(), json.dumps(value).encode()) for key, value in events]
    assert sink.process(*records).dead_letters == 0
    assert len(sink.rows("t")) == count
    assert {(row["name"], row["n"]) for row in sink.rows("t")} == {("Anne", 5)}


def test_rows_of_texts_are_no_documents(tmp_path: Path) -> None:
    """An audit table's row with texts as images is a row, between documents without source too."""
    sink = local_sink(tmp_path, ["topics=t"])
    audited = {"op": "u", "before": '{"updateDescription": 1}', "after": DOCUMENT, "ts_ms": 4}
    assert sink.process((("t", 0), b'{"id":1}', json.dumps(audited).encode())).dead_letters == 0
    (row,) = sink.rows("t")
    assert (row["before"], row["after"], row["op"]) == (audited["before"], DOCUMENT, "u")


@pytest.mark.parametrize("name", ["s.d.t.Envelope", None])
def test_documents_without_source_by_their_schema(tmp_path: Path, name: str | None) -> None:
    """A schema that has `updateDescription` beside images of texts, and no source, is one of MongoDB's envelopes."""
    text = {"type": "string", "optional": True, "name": DATA + "Json"}
    update = {"type": "struct", "optional": True, "fields": [{**text, "field": "updatedFields"}]}
    fields = [
        {**text, "field": "before"},
        {**text, "field": "after"},
        {**update, "field": "updateDescription"},
        {"type": "string", "optional": True, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    payload = {"before": None, "after": DOCUMENT, "updateDescription": None, "op": "c", "ts_ms": 1}
    sink = local_sink(tmp_path, ["topics=t"])
    value = framed(fields, payload, *([name] if name else []))
    assert sink.process((("t", 0), b'{"id":"1"}', value)).dead_letters == 0
    (row,) = sink.rows("t")
    assert (row["name"], row["n"]) == ("Anne", 5)


def test_cells_of_collections_are_collections() -> None:
    """Cassandra page, "Data Types": lists, sets, maps and tuples stand within cells like other values."""

    def cell(value: Any) -> dict[str, Any]:
        return {"value": value, "deletion_ts": None, "set": True}

    source = {
        "connector": "cassandra",
        "cluster": "c",
        "keyspace": "i",
        "table": "t",
        "file": "f",
        "pos": 54,
        "ts_ms": 1,
    }
    after = {"id": cell(1), "l": cell([1, 2]), "m": cell({"a": 1}), "t": cell({"0": "x", "1": 2})}
    event = {"op": "i", "ts_ms": 1, "after": after, "source": {**source, "snapshot": False}}
    (need,) = decode(sink_plans.run(event, event), sink_plans.plan()).needs
    types = {field.name: field.type for field in need.row}
    assert types["l"] == pa.list_(pa.int64()) and types["m"] == pa.struct([("a", pa.int64())])
    assert types["t"] == pa.struct([("0", pa.string()), ("1", pa.int64())])
