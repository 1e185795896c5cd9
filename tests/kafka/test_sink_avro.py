"""recorded Avro events -> broker, real registry -> sink -> the tables that the JSON recordings end in; bad frames."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

import pytest
from attrs import evolve
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from connector.demo.servers.ports import free_ports
from connector.errors import RetriableError
from connector.kafka.registry.confluent import SchemaRegistry
from connector.settings import RegistrySettings
from serde.wire_format import UnknownSchema
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model import recordings, reference, truth, values
from tests.model.recordings import AVRO, Record
from tests.runs.processes import Run
from tests.servers.shared import SharedRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

CONVERTER = "io.confluent.connect.avro.AvroConverter"
OTHERS = ("events_nopk", "transaction", "message")
BAD = "av.public.uuid_key"
Result = tuple[Run, Lake, list[Record]]
Ids = Mapping[int, int]


@pytest.fixture(scope="module")
def ids(registry: SharedRegistry) -> Ids:
    """Every recorded writer schema registered: recorded id -> the registry's."""
    client = SchemaRegistryClient({"url": registry.url})
    schemas = recordings.writer_schemas()
    return {
        number: client.register_schema(f"recorded-{number}", Schema(text, "AVRO")) for number, text in schemas.items()
    }


def _framed(message: bytes | None, ids: Ids) -> bytes | None:
    """The message with the registry's id in its frame."""
    if message is None:
        return None
    return message[:1] + struct.pack(">I", ids[int.from_bytes(message[1:5], "big")]) + message[5:]


def _bad(record: Record, ids: Ids) -> list[Record]:
    """The record spoilt in every way that a frame or a datum can be, one after the other."""
    assert record.value is not None
    own, text = record.value, b'{"id":1}'
    key_id = next(ids[number] for number, schema in recordings.writer_schemas().items() if '"Key"' in schema)
    spoilt = [
        text,
        b"",
        own[:3],
        own[:1] + struct.pack(">I", 4711) + own[5:],
        own[:1] + b"\xff\xff\xff\xff" + own[5:],
        own[:-1],
        own + b"\x00",
        own[:1] + struct.pack(">I", key_id) + own[5:],
    ]
    return [evolve(record, value=value, offset=0) for value in spoilt]


@pytest.fixture(scope="module")
def hard(topics: Topics, registry: SharedRegistry, ids: Ids, make_workspace: MakeWorkspace, lake: OpenLake) -> Result:
    """One run over the recording and spoilt copies of one of its events; deleted rows go."""
    records = [r for table in (*recordings.KEYED, *OTHERS) for r in recordings.load(AVRO, table)]
    records = [evolve(r, key=_framed(r.key, ids), value=_framed(r.value, ids)) for r in records]
    victim = next(r for r in records if r.topic == BAD and r.value is not None)
    topics.replay([*records, *_bad(victim, ids)])
    extra = {f"{side}.converter": CONVERTER for side in ("key", "value")}
    extra |= {f"{side}.converter.schema.registry.url": registry.url for side in ("key", "value")}
    extra |= {"debezium.sink.iceberg.upsert-keep-deletes": "false", "errors.deadletterqueue.limit.ratio": "1"}
    extra |= {"truncate.enabled": "true", "debezium.sink.iceberg.temporal-as-text": ",".join(truth.AS_TEXT)}
    names = "|".join((*recordings.KEYED, "events_nopk"))
    extra |= {"topics.regex": rf"av\.(public\.({names})|transaction|message)"}
    space = make_workspace("avro", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    return run, lake(space), topics.read("avro-dead-letters")


@pytest.mark.parametrize("table", recordings.KEYED)
def test_avro_ends_in_the_recorded_state(hard: Result, table: str) -> None:
    """A replayed Avro recording ends in PostgreSQL's recorded rows, value for value."""
    assert truth.faults(AVRO, table, hard[1].rows(f"av_public_{table}")) == []


def test_types_are_those_of_json_with_schema(hard: Result) -> None:
    """The same table made from Avro and from JSON with schema has the same columns."""
    types = hard[1].types("av_public_customers")
    expected = {"id": "int", "balance": "decimal(10, 2)", "created": "timestamptz", "updated": "timestamp"}
    expected |= {"birth": "date", "wake": "time", "uid": "uuid", "tags": "list<string>", "avatar": "binary"}
    assert {name: types[name] for name in expected} == expected


def test_a_table_without_key_gets_every_event(hard: Result) -> None:
    """Events without a key are appended, as those in JSON with schema are."""
    names = ("kind", "n", "at", "amount", "__op")
    expected = [
        {n: e[n] for n in names} for e in reference.append(recordings.load("json_schema_envelope", "events_nopk"))
    ]
    found = [{n: row[n] for n in names} for row in hard[1].rows("av_public_events_nopk")]
    assert values.differences(expected, found) == []


def test_topics_without_rows_make_no_tables(hard: Result) -> None:
    """Transaction and logical messages are read and are no tables."""
    assert not {"av_transaction", "av_message"} & hard[1].names()


def test_spoilt_messages_are_dead_letters_with_the_reason(hard: Result) -> None:
    """Each spoilt frame or datum is one dead letter that says what is wrong, and nothing else is one."""
    told = [dict(letter.headers) for letter in hard[2]]
    reasons = sorted((h["__connect.errors.exception.message"] or b"").decode() for h in told)
    expected = [
        r"Avro datum of schema id \d+ (ends before its schema does|holds .*|has bytes .*)",
        r"Avro datum of schema id \d+ ends before its schema does",
        r"Avro datum of schema id \d+ has bytes after its last field",
        r"empty message",
        r"no Avro of a schema registry: its first byte is not 0",
        r"schema id 4294967295: no registry has ids as great as this",
        r"schema id 4711: the registry does not have it",
        r"shorter than the five bytes before an Avro datum",
    ]
    assert len(reasons) == len(expected), reasons
    assert all(any(re.fullmatch(pattern, reason) for reason in reasons) for pattern in expected), reasons


def test_a_schema_comes_with_those_that_it_refers_to(registry: SharedRegistry) -> None:
    """References are fetched too, each before what refers to it; an id that is not there is said to be unknown."""
    client = SchemaRegistryClient({"url": registry.url})
    inner = '{"type":"record","name":"In","namespace":"x","fields":[{"name":"a","type":"int"}]}'
    outer = '{"type":"record","name":"Out","namespace":"y","fields":[{"name":"b","type":"x.In"}]}'
    client.register_schema("inner", Schema(inner, "AVRO"))
    number = client.register_schema("outer", Schema(outer, "AVRO", [SchemaReference("x.In", "inner", 1)]))
    ours = SchemaRegistry(RegistrySettings((("url", registry.url),)))
    assert ours.fetch_schema(number, "AVRO") == (inner, outer)
    for _ in range(2):
        with pytest.raises(UnknownSchema, match="does not have it"):
            ours.fetch_schema(987_654, "AVRO")


def test_a_registry_that_is_away_may_come_back() -> None:
    """No answer is an error that a later try may not meet."""
    (port,) = free_ports(1)
    with pytest.raises(RetriableError, match=f"registry http://127.0.0.1:{port}: asking for schema id 1"):
        SchemaRegistry(RegistrySettings((("url", f"http://127.0.0.1:{port}"),))).fetch_schema(1, "AVRO")


def test_a_registry_that_stays_away_stops_the_sink(
    hard: Result, topics: Topics, ids: Ids, make_workspace: MakeWorkspace
) -> None:
    """Without its registry the sink tries again, then stops and names it; no event becomes a dead letter."""
    record = recordings.load(AVRO, "full_pk")[0]
    topics.replay([evolve(record, topic="away", key=_framed(record.key, ids), value=_framed(record.value, ids))])
    (port,) = free_ports(1)
    extra = {f"{side}.converter": CONVERTER for side in ("key", "value")}
    extra |= {f"{side}.converter.schema.registry.url": f"http://127.0.0.1:{port}" for side in ("key", "value")}
    run = make_workspace("away", {**extra, "topics": "away", "errors.retry.timeout": "3000"}).run()
    assert run.code not in (0, 3)
    assert f"registry http://127.0.0.1:{port}" in run.text.splitlines()[-1] or "registry http" in run.text
    assert "will try again" in run.text
    assert topics.read("away-dead-letters") == []
