"""Iceberg types and Debezium's modes -> Connect schemas, envelopes and side topics, as a real Debezium writes them."""

from __future__ import annotations

import json
from typing import Any, get_args

import orjson
import pytest

from serde.emit import envelope, schema_change, side_topics
from serde.emit.connect_schema import schema
from serde.emit.envelope import SourceInfo
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct
from serde.emit.type_mapping import HandlingModes, TimeMode, wire_type
from serde.formats import FORMATS
from serde.json import json_types
from tests.model.recordings import FIXTURES

PLAINS = [
    *map(
        Primitive,
        ("boolean", "int", "long", "float", "double", "string", "uuid", "variant", "date", "time", "timestamp"),
    ),
    *map(Primitive, ("timestamptz", "timestamp_ns", "timestamptz_ns", "fixed", "binary", "unknown")),
    Primitive("decimal", 10, 2),
]
TIMES = [*get_args(TimeMode)]
FULL_PK = RowStruct(
    (
        RowField("id", Primitive("int"), False),
        RowField("v", Primitive("string")),
        RowField("n", Primitive("decimal", 10, 2)),
    )
)


def recorded(topic: str, side_of: str) -> dict[str, Any]:
    """The schema block of the first recorded message of a topic."""
    with (FIXTURES / "json_schema_envelope" / f"{topic}.jsonl").open() as lines:
        found: dict[str, Any] = json.loads(json.loads(next(lines))[f"{side_of}_text"])["schema"]
    return found


def _json(message: side_topics.SideMessage, *, schemas: bool) -> bytes:
    """The bytes of a side message by the format's serializer."""
    serializer = FORMATS["json-schema" if schemas else "json"].serializer
    assert serializer is not None
    return serializer.build(message.schema, None, {}).message(message.payload)


def test_key_schema_is_the_recorded_one() -> None:
    """A key's schema block is that of a real Debezium for the same columns, byte for byte."""
    made = envelope.key_schema("js.public.full_pk", FULL_PK.only(frozenset({"id"})), HandlingModes())
    assert orjson.dumps(made) == orjson.dumps(recorded("js.public.full_pk", "key"))


def test_envelope_schema_is_the_recorded_one() -> None:
    """An envelope's schema block is that of a real Debezium, byte for byte, but for the connector's own `source`."""
    made = envelope.value_schema("js.public.full_pk", FULL_PK, HandlingModes())
    found = recorded("js.public.full_pk", "value")
    ours, theirs = made["fields"].pop(2), found["fields"].pop(2)
    assert orjson.dumps(made) == orjson.dumps(found)
    common = 11
    assert orjson.dumps(ours["fields"][:common]) == orjson.dumps(theirs["fields"][:common])
    assert (ours["optional"], ours["version"], ours["field"]) == (False, 1, "source")


def test_transaction_messages_are_the_recorded_ones() -> None:
    """Key, BEGIN and END of a transaction are written as a real Debezium writes them, byte for byte."""
    with (FIXTURES / "json_schema_envelope" / "js.transaction.jsonl").open() as lines:
        records = [json.loads(line) for line in lines][:2]
    for record in records:
        found = json.loads(record["value_text"])["payload"]
        ident, ts_ms = found["id"], found["ts_ms"]
        counts = {c["data_collection"]: c["event_count"] for c in found["data_collections"] or ()}
        begins = found["status"] == "BEGIN"
        made = (
            side_topics.transaction_begin(ident, ts_ms) if begins else side_topics.transaction_end(ident, ts_ms, counts)
        )
        assert _json(made, schemas=True).decode() == record["value_text"]
        assert _json(side_topics.transaction_key(ident), schemas=True).decode() == record["key_text"]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("decimals", ["precise", "double", "string"])
@pytest.mark.parametrize("binaries", ["bytes", "base64", "base64-url-safe", "hex"])
def test_every_form_is_read_back(times: Any, decimals: Any, binaries: Any) -> None:
    """Whatever the modes, our own reader takes the schema of every type, nested ones too."""
    modes = HandlingModes(decimals, times, binaries)
    members = [RowField(f"c{i}", plain) for i, plain in enumerate(PLAINS)]
    nested = RowStruct(
        (
            *members,
            RowField("l", RowList(RowStruct(tuple(members)))),
            RowField("m", RowMap(Primitive("int"), PLAINS[-1])),
        )
    )
    document = envelope.value_schema("p.db.t", nested, modes)
    assert json_types.parse_schema_block(orjson.dumps(document)).fault is None


@pytest.mark.parametrize(
    ("kind", "modes", "expected"),
    [
        (Primitive("timestamp"), HandlingModes(), ("int64", "io.debezium.time.MicroTimestamp")),
        (Primitive("timestamp"), HandlingModes(times="connect"), ("int64", "org.apache.kafka.connect.data.Timestamp")),
        (Primitive("timestamp"), HandlingModes(times="isostring"), ("string", "io.debezium.time.IsoTimestamp")),
        (Primitive("timestamp"), HandlingModes(times="nanoseconds"), ("int64", "io.debezium.time.NanoTimestamp")),
        (Primitive("timestamptz"), HandlingModes(times="connect"), ("string", "io.debezium.time.ZonedTimestamp")),
        (Primitive("timestamp_ns"), HandlingModes(), ("int64", "io.debezium.time.NanoTimestamp")),
        (Primitive("time"), HandlingModes(), ("int64", "io.debezium.time.MicroTime")),
        (Primitive("time"), HandlingModes(times="connect"), ("int32", "org.apache.kafka.connect.data.Time")),
        (Primitive("date"), HandlingModes(), ("int32", "io.debezium.time.Date")),
        (Primitive("date"), HandlingModes(times="isostring"), ("string", "io.debezium.time.IsoDate")),
        (Primitive("date"), HandlingModes(times="structured"), ("struct", "io.debezium.time.StructuredDate")),
        (Primitive("time"), HandlingModes(times="structured"), ("struct", "io.debezium.time.StructuredTime")),
        (Primitive("timestamp"), HandlingModes(times="structured"), ("struct", "io.debezium.time.StructuredTimestamp")),
        (
            Primitive("timestamptz"),
            HandlingModes(times="structured"),
            ("struct", "io.debezium.time.StructuredZonedTimestamp"),
        ),
        (Primitive("decimal", 5, 2), HandlingModes(decimals="string"), ("string", None)),
        (Primitive("decimal", 5, 2), HandlingModes(decimals="double"), ("double", None)),
        (Primitive("fixed"), HandlingModes(), ("bytes", None)),
        (Primitive("binary"), HandlingModes(binaries="hex"), ("string", None)),
        (Primitive("uuid"), HandlingModes(), ("string", "io.debezium.data.Uuid")),
        (Primitive("variant"), HandlingModes(), ("string", "io.debezium.data.Json")),
    ],
    ids=str,
)
def test_modes_choose_the_form(kind: Primitive, modes: HandlingModes, expected: tuple[str, str | None]) -> None:
    """Each handling mode gives the type and semantic name that Debezium documents."""
    made = wire_type(kind, modes)
    assert (made.type, made.name) == expected


def test_structured_times_have_debeziums_members() -> None:
    """Schema names, members, their types and their order are those of `io.debezium.time.Structured*`."""
    modes = HandlingModes(times="structured")
    found = {
        kind: [
            (field["field"], field["type"]) for field in schema(Primitive(kind), modes, "t", optional=True)["fields"]
        ]
        for kind in ("date", "time", "timestamp", "timestamptz")
    }
    date = [("year", "int32"), ("month", "int8"), ("day", "int8")]
    time = [("hour", "int8"), ("minute", "int8"), ("second", "int8"), ("nanos", "int32")]
    special, precision = ("specialValue", "string"), ("precision", "int32")
    assert found == {
        "date": [*date, special],
        "time": [*time, precision],
        "timestamp": [*date, *time, special, precision],
        "timestamptz": [*date, *time, ("offsetSeconds", "int32"), ("zoneId", "string"), special, precision],
    }
    made = schema(Primitive("date"), modes, "t", optional=False)
    assert (made["optional"], made["name"], made["version"]) == (False, "io.debezium.time.StructuredDate", 1)
    assert all(field["optional"] for field in made["fields"])


def test_a_type_without_form_is_refused() -> None:
    """A geometry has no form on the wire, and is not bent into one."""
    with pytest.raises(ValueError, match="geometry"):
        schema(Primitive("geometry"), HandlingModes(), "t", optional=True)


def test_source_block_has_what_sinks_read() -> None:
    """The source block's fields are those of its schema, in order; its times are the snapshot's."""
    origin = SourceInfo("1", "p", "c", "a.b", "t", 1_700_000_000_123_456_789, "false", 7, None, 3)
    document = origin.document()
    assert list(document) == [field["field"] for field in envelope.source_schema()["fields"]]
    assert (document["ts_ms"], document["ts_us"]) == (1_700_000_000_123, 1_700_000_000_123_456)
    assert (document["db"], document["schema"], document["table"], document["snapshot"]) == ("c", "a.b", "t", "false")
    assert json.loads(document["sequence"]) == ["3"]


def test_heartbeat_is_debeziums() -> None:
    """A heartbeat without schema blocks is the two fields that Debezium sends."""
    assert _json(side_topics.heartbeat_key("p"), schemas=False) == b'{"serverName":"p"}'
    assert _json(side_topics.heartbeat(5), schemas=False) == b'{"ts_ms":5}'


def test_a_schema_change_names_every_column() -> None:
    """A schema change event fits its own schema, and names columns, types and key as they are."""
    origin = SourceInfo("1", "p", "c", "a", "t", 5_000_000, "false", 7, 6, 3)
    made = schema_change.schema_change(origin, FULL_PK, ["id"], creates=True)
    assert json_types.parse_schema_block(orjson.dumps(made.schema)).fault is None
    assert made.schema["name"].endswith(".SchemaChangeValue")
    assert list(made.payload) == [field["field"] for field in made.schema["fields"]]
    (change,) = made.payload["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", '"c"."a"."t"')
    assert change["table"]["primaryKeyColumnNames"] == ["id"]
    columns = [(c["name"], c["typeName"], c["length"], c["scale"], c["optional"]) for c in change["table"]["columns"]]
    assert columns == [
        ("id", "int", None, None, False),
        ("v", "string", None, None, True),
        ("n", "decimal", 10, 2, True),
    ]
