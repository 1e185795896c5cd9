"""Events of Debezium's outbox router -> rows: the examples of the page "Outbox Event Router", by section."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.settings.converters.converter_classes import FORMATS_BY_CLASS
from connector.sink.convert.decoder import decode
from connector.sink.convert.events.outbox import find_aggregate_type
from connector.sink.model.plan import BatchPlan, TablePlan
from tests.model import avro
from tests.unit import sink_plans

TOPIC, PATTERN = "outbox.event.order", r"outbox\.event\.(.+)"
EVENT_ID = "4d47e190-0402-4048-bc2c-89dd54343cdc"
# "Example outbox message": the payload as text; "Expanding escaped JSON String as JSON": the same as JSON.
ORDER = (
    b'{"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action", "totalPrice": 39.98}, '
    b'{"id": 2, "totalPrice": 29.99}], "orderDate": "2019-01-31T12:13:01", "customerId": 123}'
)
TEXTS = ("id", "aggregatetype", "aggregateid", "type", "payload")


def plan(*tables: TablePlan, **events: Any) -> BatchPlan:
    settings = EventSettings(events.pop("key", "auto"), events.pop("value", "auto"), (), "__", outbox_topics=PATTERN)
    routes = {TOPIC: 0} if tables else {}
    return sink_plans.plan(*tables, events=settings, routes=routes, ranks={(TOPIC, 0): 0}, **events)


def table(**more: pa.DataType) -> TablePlan:
    return sink_plans.append(0, {**dict.fromkeys(TEXTS, pa.string()), **more})


def run(value: bytes | None, key: bytes | None = b"1", **headers: bytes) -> Any:
    found = sink_plans.run(value, keys=[key], topic=TOPIC)
    columns: Mapping[str, pa.Array] = {name: pa.array([text], pa.binary()) for name, text in headers.items()}
    return attrs.evolve(found, headers=columns)


def _schema(value: Any, **schema: Any) -> bytes:
    return orjson.dumps({"schema": schema, "payload": value})


FORMS = {
    "text as JSON with schema": _schema(ORDER.decode(), type="string", optional=False),
    "text as JSON": orjson.dumps(ORDER.decode()),
    "expanded, or by StringConverter": ORDER,
}


@pytest.mark.parametrize(
    "key", [b"1", b'"1"', _schema("1", type="string", optional=False)], ids=["plain", "json", "schema"]
)
@pytest.mark.parametrize("form", FORMS)
def test_the_documented_event_is_a_row(form: str, key: bytes) -> None:
    """Whatever converters wrote it, the event is a row of the documented columns, its payload the text that it was."""
    given = run(FORMS[form], key, id=EVENT_ID.encode())
    (need,) = decode(given, plan()).needs
    assert (need.row, need.key) == (pa.struct([(name, pa.string()) for name in TEXTS]), None)
    outcome = decode(given, plan(table()))
    assert sink_plans.dead(outcome) == {}
    (row,) = sink_plans.rows(outcome)
    expected = {"id": EVENT_ID, "aggregatetype": "order", "aggregateid": "1", "type": None}
    assert row == {**expected, "payload": ORDER.decode()}


@pytest.mark.parametrize("key", [b"007", b"a-1", b"1e5", b"b7e2/x y", b"true"])
def test_keys_are_texts_as_they_are(key: bytes) -> None:
    """A key that StringConverter wrote is not read as JSON, which would make 7 of 007."""
    (row,) = sink_plans.rows(decode(run(ORDER, key), plan(table())))
    assert row["aggregateid"] == key.decode()


def test_the_type_comes_from_a_header_or_from_beside_the_payload() -> None:
    """ "Emitting messages with additional fields": placed in a header, or in the value beside the payload."""
    (row,) = sink_plans.rows(decode(run(ORDER, eventType=b"OrderCreated"), plan(table())))
    assert row["type"] == "OrderCreated"
    value = orjson.dumps({"payload": ORDER.decode(), "type": "OrderShipped", "version": 3})
    (need,) = decode(run(value), plan(table())).needs
    assert need.row.field("version").type == pa.int64()
    (row,) = sink_plans.rows(decode(run(value), plan(table(version=pa.int64()))))
    assert (row["payload"], row["type"], row["version"]) == (ORDER.decode(), "OrderShipped", 3)


BESIDE = {
    "an escaped text": (b'"{\\"id\\": 1}"', '{"id": 1}'),
    "expanded": (b'{"id":1,"price":39.980,"none":null,"items":[{"a":1},"b"]}', None),
    "an expanded list": (b"[1,2.50]", None),
    "none": (b"null", ""),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_a_field_beside_the_payload_leaves_it_what_it_is(kind: str) -> None:
    """`table.fields.additional.placement=type:envelope`, with and without `table.expand.json.payload`, no schemas."""
    payload, read = BESIDE[kind]
    value = b'{"payload":%s,"type":"OrderCreated"}' % payload
    (row,) = sink_plans.rows(decode(run(value, id=b"x"), plan(table())))
    assert (row["id"], row["type"]) == ("x", "OrderCreated")
    assert row["payload"] == ((payload.decode() if read is None else read) or None)


OWN = (
    b'{"id":7,"type":"X","payload":"p"}',
    b'{"eventType":"X","payload":{"a":1.50,"b":null}}',
    b'{"schema":"v1","payload":[1],"n":2}',
)


@pytest.mark.parametrize("value", OWN)
def test_a_payload_may_have_a_member_payload(value: bytes) -> None:
    """What an application wrote so is its own JSON: the router writes the payload first, and then what is beside it."""
    (need,) = decode(run(value), plan()).needs
    assert need.row.names == list(TEXTS)
    (row,) = sink_plans.rows(decode(run(value, id=b"x"), plan(table())))
    assert (row["id"], row["type"], row["payload"]) == ("x", None, value.decode())


def test_null_as_json_is_no_payload() -> None:
    """JsonConverter without schemas writes an event without payload as `null`; StringConverter writes no value."""
    for how, expected in (({}, None), ({"value": "json"}, None), ({"value": "string"}, "null")):
        (row,) = sink_plans.rows(decode(run(b"null", id=b"x"), plan(table(), **how)))
        assert (row["id"], row["payload"]) == ("x", expected)


def test_neighbours_do_not_change_what_a_message_is() -> None:
    """One that is no text, or of another form, is decoded apart from those beside it."""
    texts: list[Any] = [b"007", b'"a"', _schema("b", type="string"), b"c d", b"1e5", b"\xff\xfe", None]
    values = [ORDER, FORMS["text as JSON"], FORMS["text as JSON with schema"], b"plain", b"5", b"\xff", b"null"]
    values += [b'{"payload":"p","type":"T"}', b'{"payload":"p","of":{"a":1}}']
    texts += [b"k", b"k"]
    mixed = sink_plans.run(*values, keys=texts, topic=TOPIC)
    rows = sink_plans.rows(outcome := decode(mixed, plan(table())))
    assert [row["aggregateid"] for row in rows] == ["007", "a", "b", "c d", "1e5", None, "k", "k"]
    assert [row["payload"] for row in rows] == [*[ORDER.decode()] * 3, "plain", "5", None, "p", values[-1].decode()]
    assert [row["type"] for row in rows[-2:]] == ["T", None]
    assert list(sink_plans.dead(outcome)) == [5]


KEYS = {
    "text": ("string", "agg-1", "agg-1"),
    "number": ("long", 5, "5"),
    "uuid": ({"type": "string", "connect.name": "io.debezium.data.Uuid"}, EVENT_ID, EVENT_ID),
    "bytes": ("bytes", b"\xff\xfe", "//4="),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_read_by_their_schema(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`table.field.event.key` names a column of any type: its schema is the key's, by Avro and by JSON with schemas."""
    schema, value, expected = KEYS[kind]
    number = 20 + list(KEYS).index(kind)
    told = {20 + at: (orjson.dumps(one[0]).decode(),) for at, one in enumerate(KEYS.values())}
    schemas = {1: ('"string"',), **told}
    monkeypatch.setattr("connector.sink.convert.converters._schema_fetcher", lambda *_: schemas.__getitem__)
    made = plan(table(), value="avro", key="avro")
    key = b"\0\0\0\0" + bytes([number]) + avro.written(schema if isinstance(schema, str) else "string", value)
    (row,) = sink_plans.rows(decode(run(b"\0\0\0\0\x01" + avro.written("string", "{}"), key), made))
    assert (row["aggregateid"], row["payload"]) == (expected, "{}")
    types = {"number": {"type": "int64"}, "bytes": {"type": "bytes"}, "uuid": {"name": "io.debezium.data.Uuid"}}
    written = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    (row,) = sink_plans.rows(
        decode(run(ORDER, _schema(written, **{"type": "string", **types.get(kind, {})})), plan(table()))
    )
    assert row["aggregateid"] == expected


@pytest.mark.parametrize("text", ["%s", '"%s"', '{"schema":{"type":"string","optional":false},"payload":"%s"}'])
def test_headers_may_be_json(text: str) -> None:
    """By default headers are texts; with `header.converter=JsonConverter` they are JSON, with schemas or without."""
    headers = {"id": text % EVENT_ID, "eventType": text % "OrderCreated"}
    (row,) = sink_plans.rows(decode(run(ORDER, **{k: v.encode() for k, v in headers.items()}), plan(table())))
    assert (row["id"], row["type"]) == (EVENT_ID, "OrderCreated")


def test_an_expanded_payload_with_schema_is_its_json() -> None:
    """With `table.expand.json.payload` and schemas the struct is stored as JSON again."""
    fields = [{"type": "int32", "optional": True, "field": "id"}, {"type": "string", "optional": True, "field": "s"}]
    (row,) = sink_plans.rows(decode(run(_schema({"id": 1, "s": "x"}, type="struct", fields=fields)), plan(table())))
    assert orjson.loads(row["payload"]) == {"id": 1, "s": "x"}


def test_avro_values_are_read_by_their_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that is one text, and an expanded one, both by Avro."""
    record = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "int"}]}
    schemas = {1: ('"string"',), 2: (orjson.dumps(record).decode(),)}
    monkeypatch.setattr("connector.sink.convert.converters._schema_fetcher", lambda *_: schemas.__getitem__)
    made = plan(table(), value="avro", key="string")
    text = avro.written("string", ORDER.decode())
    (row,) = sink_plans.rows(decode(run(b"\0\0\0\0\x01" + text), made))
    assert row["payload"] == ORDER.decode()
    (row,) = sink_plans.rows(decode(run(b"\0\0\0\0\x02" + avro.written(record, {"id": 5})), made))
    assert orjson.loads(row["payload"]) == {"id": 5}


CONVERTERS = (
    "io.debezium.converters.BinaryDataConverter",
    "io.debezium.converters.ByteBufferConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter",
)
AVRO_BYTES = b"\0\0\0\0\x05\x02\xff\xfe"


@pytest.mark.parametrize("name", CONVERTERS)
def test_binary_payloads_are_bytes(name: str) -> None:
    """ "Using Apache Avro as the payload format", of the page and of MongoDB's: the payload is the value as it is."""
    assert FORMATS_BY_CLASS[name].name == "bytes"
    made = plan(value="bytes", key="string")
    (need,) = decode(run(AVRO_BYTES), made).needs
    assert need.row.field("payload").type == pa.binary()
    (also,) = decode(run(b"a text"), made).needs
    assert also.row.field("payload").type == pa.binary()
    (also,) = decode(run(b"a text"), plan(value="bytes", key="string", variants=True)).needs
    assert also.row.field("payload").type == pa.binary()
    for value in (AVRO_BYTES, b"a text", b"", None):
        given = run(value, id=b"x")
        (row,) = sink_plans.rows(decode(given, plan(table(payload=pa.binary()), value="bytes", key="string")))
        assert (row["id"], row["aggregateid"], row["payload"]) == ("x", "1", value)


def test_the_tables_column_says_what_payloads_are() -> None:
    """A table of texts takes bytes that are text, and no others; one of bytes takes texts as their UTF-8."""
    made = plan(table(), value="bytes", key="string")
    (row,) = sink_plans.rows(decode(run(ORDER), made))
    assert row["payload"] == ORDER.decode()
    assert "UTF-8" in sink_plans.dead(decode(run(AVRO_BYTES), made))[0]
    for form in FORMS.values():
        (row,) = sink_plans.rows(decode(run(form), plan(table(payload=pa.binary()))))
        assert row["payload"] == ORDER


def test_bytes_of_a_schema_are_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload of bytes by JsonConverter with schemas, and by Avro; in tables from before its JSON."""
    value = _schema(base64.b64encode(AVRO_BYTES).decode(), type="bytes", optional=True)
    schemas = {7: ('"bytes"',)}
    monkeypatch.setattr("connector.sink.convert.converters._schema_fetcher", lambda *_: schemas.__getitem__)
    written = b"\0\0\0\0\x07" + avro.written("bytes", AVRO_BYTES)
    for given, how in ((value, {}), (written, {"value": "avro", "key": "bytes"})):
        (need,) = decode(run(given), plan(**how)).needs
        assert need.row.field("payload").type == pa.binary()
        (row,) = sink_plans.rows(decode(run(given), plan(table(payload=pa.binary()), **how)))
        assert row["payload"] == AVRO_BYTES
    (row,) = sink_plans.rows(decode(run(value), plan(table())))
    assert orjson.loads(row["payload"]) == base64.b64encode(AVRO_BYTES).decode()


def test_records_that_nothing_reads_are_no_reason_for_a_table() -> None:
    """Else it would have a payload of text, and no bytes could come in once the converter is named."""
    outcome = decode(run(AVRO_BYTES), plan())
    assert not outcome.needs and list(sink_plans.dead(outcome)) == [0]


def test_what_is_no_text_is_dead_and_an_empty_payload_is_a_row() -> None:
    """Bytes that nothing reads are a dead letter; an event without payload is an event all the same."""
    assert "UTF-8" in sink_plans.dead(decode(run(b"\xff\xfe"), plan(table(), value="string", key="string")))[0]
    (row,) = sink_plans.rows(decode(run(None, id=b"x"), plan(table())))
    assert (row["id"], row["payload"]) == ("x", None)


def test_a_payload_may_be_a_variant() -> None:
    """With nested values as variants the payload's column is one."""
    (need,) = decode(run(ORDER), plan(variants=True)).needs
    assert need.row.field("payload").type == pa.json_()


def test_the_topic_tells_the_aggregate() -> None:
    """The pattern's group is the aggregate type; other topics are none of the router's."""
    assert find_aggregate_type("outbox.event.a.b", PATTERN) == "a.b"
    assert find_aggregate_type("outbox.events", PATTERN) is None
    assert find_aggregate_type("x", "x") == "x" and find_aggregate_type("x", None) is None
