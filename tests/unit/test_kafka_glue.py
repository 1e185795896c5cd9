"""AWS Glue's frame and registry: versions by uuid, compressed or not, against moto's Glue over HTTP."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from connector.errors import ConfigError, FatalError, RetriableError
from connector.kafka.registry.glue import GlueRegistry
from connector.settings import EventSettings, SinkSettings, load
from connector.settings.converters.glue import GlueSettings
from connector.sink.convert.converters import find_converters
from connector.sink.convert.decoder import decode
from serde.frames import GlueFrame
from serde.wire_format import UnknownSchema
from tests.model import avro
from tests.unit import sink_plans

ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": "t",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
CONVERTER = "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter"
GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of a Glue that moto serves."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")


@pytest.fixture(scope="module")
def version(endpoint: str) -> uuid.UUID:
    """The schema version of ROW."""
    return _register(endpoint, "rows", "AVRO", json.dumps(ROW))


def _register(endpoint: str, name: str, kind: str, text: str) -> uuid.UUID:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    client = boto3.client("glue", region_name="eu-west-1", endpoint_url=endpoint, **keys)
    made = client.create_schema(SchemaName=name, DataFormat=kind, Compatibility="NONE", SchemaDefinition=text)
    return uuid.UUID(made["SchemaVersionId"])


def framed(datum: bytes, version: uuid.UUID, packing: int = 0) -> bytes:
    """A datum in Glue's frame."""
    return bytes([3, packing]) + version.bytes + (zlib.compress(datum) if packing == 5 else datum)


def _plan(endpoint: str) -> Any:
    table = sink_plans.append(0, {"id": pa.int64(), "name": pa.string()})
    registry = GlueSettings("eu-west-1", endpoint)
    return sink_plans.plan(table, events=EventSettings("string", "avro", (), "__", value_registry=registry))


ORDERS = """
syntax = "proto3";
package shop;
import "additionalTypes/decimal.proto";
import "metadata/metadata.proto";
message Value {
  message Inner { string text = 1; message Deep { int64 n = 1; } }
  int64 id = 1;
  optional string name = 2 [(metadata.metadata_key) = "connect.schema", (metadata.metadata_value) = "x"];
  additionalTypes.Decimal amount = 3;
  map<string, int32> counts = 4;
}
message Another { int64 id = 1; }
"""
# By name: shop.Another, shop.Value, shop.Value.CountsEntry, shop.Value.Inner, shop.Value.Inner.Deep.
ANOTHER, VALUE, INNER = 0, 1, 3


@pytest.mark.parametrize("packing", [0, 5])
def test_protobuf_is_read_by_the_number_of_its_message(endpoint: str, packing: int) -> None:
    """Messages of one file are told apart by their place among all names, a plain varint; an unknown one is dead."""
    version = _register(endpoint, f"orders{packing}", "PROTOBUF", ORDERS)
    amount = bytes([8, 12, 16, 128, 202, 181, 238, 1, 24, 4, 32, 2])
    value = bytes([VALUE, 8, 7, 18, 1, 97, 26, len(amount)]) + amount
    numbered = [value, bytes([ANOTHER, 8, 9]), bytes([INNER, 10, 1, 98]), bytes([200, 1, 8, 9]), b"\xff"]
    registry = GlueSettings("eu-west-1", endpoint)
    table = sink_plans.append(0, {"id": pa.int64(), "name": pa.string(), "text": pa.string()})
    settings = EventSettings("string", "protobuf", (), "__", value_registry=registry)
    deserializer = find_converters(sink_plans.plan(table, events=settings)).value
    found = deserializer.decode(pa.array([framed(one, version, packing) for one in numbered]), "VALUE_CONVERTER")
    pairs = [zip(block.rows.tolist(), block.fields.to_pylist(), strict=True) for block in found.blocks]
    rows = {row: each for some in pairs for row, each in some}
    decimal = {"units": 12, "fraction": 500000000, "precision": 4, "scale": 2}
    assert rows == {
        0: {"id": 7, "name": "a", "amount": decimal, "counts": []},
        1: {"id": 9},
        2: {"text": "b"},
    }
    assert [fault.row for fault in found.faults] == [3, 4]


def test_the_class_of_glues_protobuf_means_its_frame() -> None:
    """Its ProtobufSchemaConverter reads Protobuf with Glue's registry."""
    name = "com.amazonaws.services.schemaregistry.kafkaconnect.protobuf.ProtobufSchemaConverter"
    given = {"value.converter": name, "value.converter.region": "eu-west-1"}
    events = load([], GOOD | given, {}).events
    assert events.value_format == "protobuf"
    assert events.value_registry == GlueSettings("eu-west-1")


def test_frames_are_read(endpoint: str, version: uuid.UUID) -> None:
    """Compressed or not, a record is read by the schema version that its uuid names; a null is no record."""
    rows = [{"id": index, "name": "ä" * index} for index in range(4)]
    datums = [avro.written(ROW, row) for row in rows]
    run = sink_plans.run(*(framed(datum, version, (0, 5)[at % 2]) for at, datum in enumerate(datums)), None)
    outcome = decode(run, _plan(endpoint))
    assert sink_plans.rows(outcome) == rows and not outcome.faults


def test_broken_frames_are_dead_letters(endpoint: str, version: uuid.UUID) -> None:
    """Every fault of a frame is a dead letter of its own that says what is wrong; the others are read."""
    datum = avro.written(ROW, {"id": 1, "name": "x"})
    good, packed = framed(datum, version), framed(datum, version, 5)
    unknown = framed(datum, uuid.UUID(int=5))
    broken = [
        (b"", "empty message"),
        (b"\0" + good[1:], "no Avro of a schema registry: its first byte is not 3"),
        (good[:17], "shorter than the eighteen bytes"),
        (good[:1] + b"\1" + good[2:], "its compression is none"),
        (packed[:-1], "do not end where it does"),
        (packed + b"x", "do not end where it does"),
        (packed[:18] + b"\xff\xff", "cannot be unpacked"),
        (good[:-1], f"schema id {version} ends before its schema does"),
        (unknown, "schema id 5: the registry does not have it"),
    ]
    outcome = decode(sink_plans.run(good, *(message for message, _ in broken), packed), _plan(endpoint))
    assert sink_plans.rows(outcome) == [{"id": 1, "name": "x"}] * 2
    found = sink_plans.dead(outcome)
    assert sorted(found) == list(range(1, len(broken) + 1))
    assert [reason for at, (_, reason) in enumerate(broken, 1) if reason not in found[at]] == []


def test_what_unpacks_to_too_much_is_a_dead_letter() -> None:
    """A small record that claims to be a huge one costs no memory."""
    faults: list[tuple[int, str]] = []
    message = framed(b"\0" * 100_000, uuid.UUID(int=1), 5)
    from serde.byte_windows import byte_windows

    texts, _ = byte_windows(pa.array([message]))
    groups = GlueFrame(max_bytes=1000).split(texts, pa.array([0]).to_numpy(), "Avro", lambda *one: faults.append(one))
    assert [len(group.rows) for group in groups] == [0]
    assert faults == [(0, "its compressed bytes do not end where it does")]


def test_a_registry_is_asked_once(endpoint: str, version: uuid.UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version is asked for once, a missing one twice, and not again soon; one of another format is unknown."""
    one = GlueRegistry(GlueSettings("eu-west-1", endpoint))
    asked: list[object] = []
    made = GlueRegistry._client
    monkeypatch.setattr(GlueRegistry, "_client", lambda self: (asked.append(self), made(self))[1])
    for _ in range(2):
        assert json.loads(*one.fetch_schema(version.int, "AVRO")) == ROW
        with pytest.raises(UnknownSchema, match="does not have it"):
            one.fetch_schema(4, "AVRO")
        with pytest.raises(UnknownSchema, match="of type AVRO there, not Json"):
            one.fetch_schema(version.int, "JSON")
    assert len(asked) == 4
    one.ping()


def test_a_registry_that_is_away_or_closed_is_told_apart(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away is tried again; without credentials the sink stops and says so."""
    with pytest.raises(RetriableError):
        GlueRegistry(GlueSettings("eu-west-1", "http://127.0.0.1:9")).fetch_schema(1, "AVRO")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(FatalError, match="no credentials"):
        GlueRegistry(GlueSettings("eu-west-1", endpoint)).fetch_schema(1, "AVRO")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDeniedException", 400, FatalError),
        ("ThrottlingException", 400, RetriableError),
        ("InternalServiceException", 500, RetriableError),
        ("EntityNotFoundException", 400, UnknownSchema),
    ],
)
def test_answers_of_aws(code: str, status: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """What AWS refuses is fatal, what it is too busy for is tried again; no text of its is shown."""
    from botocore.exceptions import ClientError

    response = {"Error": {"Code": code, "Message": "s3cret"}, "ResponseMetadata": {"HTTPStatusCode": status}}

    class Client:
        def get_schema_version(self, **_: str) -> None:
            raise ClientError(response, "GetSchemaVersion")

    monkeypatch.setattr(GlueRegistry, "_client", lambda _: Client())
    with pytest.raises(kind) as raised:
        GlueRegistry(GlueSettings("eu-west-1")).fetch_schema(9, "AVRO")
    assert "s3cret" not in str(raised.value)


def _sink(**given: str) -> SinkSettings:
    return load([], GOOD | {key.replace("__", "."): text for key, text in given.items()}, {})


@pytest.mark.parametrize("name", [CONVERTER, "AWSKafkaAvroConverter"])
def test_settings_are_those_of_its_converters(name: str) -> None:
    """The names are those of AWS's converters, which need a region."""
    events = _sink(
        value__converter=name, value__converter__region="eu-west-1", value__converter__endpoint="http://e"
    ).events
    assert (events.value_format, events.value_registry) == ("avro", GlueSettings("eu-west-1", "http://e"))
    with pytest.raises(ConfigError, match=r"value\.converter\.region: is missing"):
        _sink(value__converter=name)


def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AWS's client the settings say what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"icebridge\[aws\]"):
        _sink(value__converter=CONVERTER, value__converter__region="eu-west-1")
