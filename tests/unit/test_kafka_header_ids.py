"""Schema ids of Confluent Platform 8 in headers, as its own serializers write them -> rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import attrs
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.records.header_bytes import encode_headers
from connector.kafka.consumer.records.record_columns import RecordColumns
from connector.settings import EventSettings, load
from connector.settings.converters.schema_registry import RegistrySettings
from connector.sink.convert.decoder import decode
from connector.sink.convert.header_ids import find_wanted_headers
from connector.sink.destinations.iceberg.tables.source_schemas import SourceSchemas
from connector.sink.microbatch.transactions.transaction_task import transaction_task
from tests.harness.http_server import serve_http
from tests.model import avro
from tests.unit import sink_plans

pytestmark = pytest.mark.unit

GUID, OTHER_GUID = "89791762-2336-4186-9674-299b90a802e2", "00000000-2336-4186-9674-299b90a802e3"
ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
COUNTS = {
    "type": "record",
    "name": "Counts",
    "fields": [{"name": "data_collection", "type": "string"}, {"name": "event_count", "type": "long"}],
}
END = {
    "type": "record",
    "name": "TransactionMetadataValue",
    "namespace": "io.debezium.connector.common",
    "fields": [
        *({"name": name, "type": "string"} for name in ("status", "id")),
        {"name": "ts_ms", "type": "long"},
        {"name": "data_collections", "type": {"type": "array", "items": COUNTS}},
    ],
}
CHANGE = {
    "type": "record",
    "name": "SchemaChangeValue",
    "fields": [
        {"name": "source", "type": {"type": "record", "name": "S", "fields": [{"name": "name", "type": "string"}]}},
        {"name": "ddl", "type": "string"},
        {
            "name": "tableChanges",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "C", "fields": [{"name": "id", "type": "string"}]},
            },
        },
    ],
}
END_GUID, CHANGE_GUID = "10000000-2336-4186-9674-299b90a802e4", "10000000-2336-4186-9674-299b90a802e5"
PROTOBUF = 'syntax = "proto3"; message A { string x = 1; } message B { int64 id = 1; }'
PAGES: dict[str, dict[str, Any]] = {
    "/schemas/ids/7": {"schema": json.dumps(ROW)},
    f"/schemas/guids/{GUID}": {"schema": json.dumps(ROW)},
    f"/schemas/guids/{OTHER_GUID}": {"schema": PROTOBUF, "schemaType": "PROTOBUF"},
    f"/schemas/guids/{END_GUID}": {"schema": json.dumps(END)},
    f"/schemas/guids/{CHANGE_GUID}": {"schema": json.dumps(CHANGE)},
    "/subjects/t-value/versions": {"id": 7, "guid": GUID, "version": 1, "schema": json.dumps(ROW)},
}


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer with the page, or that there is none."""
        page = PAGES.get(self.path.partition("?")[0])
        self.send_response(404 if page is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(page or {"error_code": 40403, "message": "none"}).encode())

    do_POST = do_GET  # noqa: N815 - the standard library's name


@pytest.fixture
def registry() -> Iterator[str]:
    """The URL of a registry that has the pages."""
    with serve_http(_Pages) as url:
        yield url


def _plan(url: str, value_format: str = "avro") -> Any:
    made = RegistrySettings((("url", url),))
    events = EventSettings("string", value_format, (), "__", value_registry=made)
    return sink_plans.plan(sink_plans.append(0, {"id": pa.int64()}), events=events)


def _run(*records: tuple[bytes | None, bytes | None]) -> ConsumerRecords:
    """Records as (header, value)."""
    headers = [[] if one is None else [("__value_schema_id", one)] for one, _ in records]
    return ConsumerRecords.of_records(("t", 0), [(at, None, value) for at, (_, value) in enumerate(records)], headers)


def test_what_confluents_serializer_writes_is_read(registry: str) -> None:
    """Its header names the schema by a GUID; records in front of it have their id in the value, or no value."""
    serializer = AvroSerializer(
        SchemaRegistryClient({"url": registry}),
        json.dumps(ROW),
        conf={"schema.id.serializer": header_schema_id_serializer},
    )
    context = SerializationContext("t", MessageField.VALUE, [])
    value = serializer({"id": 5}, context)
    ((name, header),) = context.headers
    assert find_wanted_headers("t", _plan(registry).events) == (name,) == ("__value_schema_id",)
    run = _run((None, b"\0\0\0\0\x07\x08"), (header, value), (None, None), (b"\0\0\0\0\x07", b"\x0c"))
    outcome = decode(run, _plan(registry))
    assert sink_plans.rows(outcome) == [{"id": 4}, {"id": 5}, {"id": 6}]
    assert sink_plans.dead(outcome) == {}


def test_a_header_tells_which_message_of_a_protobuf_file_it_is(registry: str) -> None:
    """All that stands in front of the bytes otherwise is in the header."""
    header = SchemaId("PROTOBUF", guid=OTHER_GUID, message_indexes=[1]).guid_to_bytes()
    assert sink_plans.rows(decode(_run((header, b"\x08\x09")), _plan(registry, "protobuf"))) == [{"id": 9}]


def test_topics_of_transactions_have_such_headers_too(registry: str) -> None:
    """An END is read by the schema that its header names, for the table's batch and for who counts transactions."""
    counts = [{"data_collection": "public.t", "event_count": 2}]
    datum = avro.written(END, {"status": "END", "id": "5", "ts_ms": 1, "data_collections": counts})
    run = _run((SchemaId("AVRO", guid=END_GUID).guid_to_bytes(), datum))
    feed = SimpleNamespace(chunks=lambda _: iter([run]))
    plan = attrs.evolve(_plan(registry), transaction_topic="t", assignment=feed, ranks={("server.public.t", 0): 0})
    assert sink_plans.dead(decode(run, plan)) == {}
    numbers = iter([pa.RecordBatch.from_pydict({"number": [0]})])
    (told,) = transaction_task(plan, "t")(numbers)
    assert (told["id"].to_pylist(), told["count"].to_pylist()) == (["5"], [2])


def test_topics_of_schema_changes_have_such_headers_too(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change is noted for its table, whether the id is in a header or in the value."""
    datum = avro.written(CHANGE, {"source": {"name": "p"}, "ddl": "", "tableChanges": [{"id": '"s"."t"'}]})
    header = ("__value_schema_id", SchemaId("AVRO", guid=CHANGE_GUID).guid_to_bytes())
    record = SimpleNamespace(offset=lambda: 0, key=lambda: None, value=lambda: datum, headers=lambda: [header])
    given = {
        "bootstrap.servers": "localhost:1",
        "topics": "t",
        "debezium.sink.iceberg.warehouse": "/w",
        "debezium.sink.iceberg.schema-change-topics": "p",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": registry,
    }
    schemas = SourceSchemas(load([], given, {}))
    answers = iter([[record], []])
    monkeypatch.setattr(schemas, "_reader", Mock(read_from=lambda at, _: {place: next(answers) for place in at}))
    schemas._next["p", 0] = 0
    schemas._read()
    assert "p.s.t" in schemas._tables


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b"\1" + bytes(15), "seventeen bytes"),
        (b"\1" + b"\xff" * 16, "the registry does not have it"),
        (b"\2" + bytes(16), "its first byte is not 0"),
    ],
)
def test_a_header_that_names_no_schema_costs_its_record_alone(registry: str, header: bytes, told: str) -> None:
    """What is cut, not known, or none of Confluent's is a dead letter; the others are read."""
    outcome = decode(_run((header, b""), (None, b"\0\0\0\0\x07\x08")), _plan(registry))
    assert sink_plans.rows(outcome) == [{"id": 4}]
    assert list(sink_plans.dead(outcome)) == [0] and told in sink_plans.dead(outcome)[0]


def test_headers_that_no_record_has_are_none() -> None:
    """Records without any of the wanted headers are decoded together with those of other partitions."""
    values, (data, headers, ends) = pa.array([b"x", b"y"], pa.binary()), encode_headers([[("a", b"1")], []])
    fetched = RecordColumns(np.arange(2), values, values, data, headers, ends)
    run = ConsumerRecords.of_fetched("t", 0, fetched)
    assert run.with_named_headers(["__value_schema_id"]).headers == {}
    assert run.with_named_headers(["__value_schema_id", "a"]).headers["a"].to_pylist() == [b"1", None]
