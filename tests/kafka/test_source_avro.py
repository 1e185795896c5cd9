"""Iceberg snapshots -> Avro in a real broker with a real registry -> our own sink: both tables equal; side topics."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, SchemaRegistryClient, ServerConfig
from pyspark.sql import SparkSession

from connector.demo.servers.ports import free_ports
from connector.errors import FatalError, RetriableError
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.host import Host
from tests.runs.sources import SourceWorkspace, make_source_workspace
from tests.servers.shared import SharedRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

CONVERTER = "io.confluent.connect.avro.AvroConverter"
MakeSource = Callable[..., SourceWorkspace]
Decode = Callable[[bytes | None], Any]
OFFSETS = (
    ("show",),
    ("reset", "--to", "latest"),
    ("show",),
    ("reset", "--table", "db.t", "--execute"),
    ("show",),
    ("reset", "--to", "latest", "--execute"),
    ("show",),
    ("reset", "--table", "db.x"),
)


@pytest.fixture(scope="module")
def client(registry: SharedRegistry) -> SchemaRegistryClient:
    """The tests' client of it."""
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture(scope="module")
def decode(client: SchemaRegistryClient) -> Decode:
    """Gives the value of a message by fastavro and the schema that its frame names."""

    def read(message: bytes | None) -> Any:
        if message is None:
            return None
        assert message[0] == 0
        schema = client.get_schema(int.from_bytes(message[1:5], "big")).schema_str
        return fastavro.schemaless_reader(
            io.BytesIO(message[5:]), fastavro.parse_schema(json.loads(schema or "")), None
        )

    return read


@pytest.fixture(scope="module")
def make_source(
    spark: SparkSession, topics: Topics, registry: SharedRegistry, tmp_path_factory: pytest.TempPathFactory
) -> MakeSource:
    """make_source(name, {"property": "value"}) gives a source that writes Avro, with a catalog of its own."""

    def make(name: str, extra: dict[str, str] | None = None) -> SourceWorkspace:
        return make_source_workspace(
            spark, topics, tmp_path_factory.mktemp(name), name, {**converters(registry.url), **(extra or {})}
        )

    return make


def converters(url: str) -> dict[str, str]:
    """Avro on both sides, with this registry."""
    sides = ("key", "value")
    return {f"{side}.converter": CONVERTER for side in sides} | {
        f"{side}.converter.schema.registry.url": url for side in sides
    }


@pytest.fixture(scope="module")
def published(make_source: MakeSource) -> SourceWorkspace:
    """One source over a table that is read in full, then changed: keys too, and with a new column."""
    extra = {"provide.transaction.metadata": "true", "include.schema.changes": "true", "heartbeat.interval.ms": "1"}
    source = make_source("avroout", {**extra, "topic.heartbeat.prefix": "beats"})
    source.sql(
        "CREATE TABLE T.t (id BIGINT NOT NULL, `a name` STRING, amount DECIMAL(20, 3), at TIMESTAMP, day DATE, "
        "l ARRAY<STRUCT<x: INT>>, m MAP<INT, STRING>, d DOUBLE, raw BINARY) USING iceberg "
        "PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ('format-version'='3')",
        "INSERT INTO T.t SELECT id, concat('n', id), id / 7, timestamp_micros(id * 1000001 - 5000), "
        "date_from_unix_date(id - 100), array(named_struct('x', cast(id AS INT)), null), "
        "map(cast(id AS INT), 'v'), IF(id = 5, double('NaN'), id / 3), cast(concat('b', id) AS BINARY) FROM range(500)",
    )
    source.identify("t", "id")
    source.publish()
    source.sql(
        "ALTER TABLE T.t ADD COLUMN more STRING",
        "UPDATE T.t SET amount = -amount, more = 'x', id = IF(id % 20 = 3, id + 5000, id) WHERE id % 10 = 3",
        "DELETE FROM T.t WHERE id % 10 = 4",
        "INSERT INTO T.t (id) SELECT id FROM range(2000, 2100)",
    )
    source.publish()
    return source


@pytest.mark.thorough
def test_the_sink_makes_an_equal_table_of_avro(
    published: SourceWorkspace, registry: SharedRegistry, make_workspace: MakeWorkspace
) -> None:
    """What the source writes in Avro, our sink makes a second table of, which equals the first."""
    extra = {"topics": "avroout.db.t", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace("avrocopy", {**converters(registry.url), **extra})
    ended = space.run()
    assert ended.code == 0, ended.text[-4000:]
    found = Lake(published.spark, space.name, space.catalog).many("avroout_db_t")
    wanted = [{"a_name" if c == "a name" else c: v for c, v in row.items()} for row in published.rows("t")]
    columns = list(wanted[0])
    assert Counter(repr([row[c] for c in columns]) for row in found) == Counter(
        repr([row[c] for c in columns]) for row in wanted
    )


def test_schemas_are_registered_once_and_evolve(published: SourceWorkspace, client: SchemaRegistryClient) -> None:
    """A topic's key schema has one version; its value schema a second one since there is a new column."""
    assert client.get_versions("avroout.db.t-key") == [1]
    assert client.get_versions("avroout.db.t-value") == [1, 2]
    ids = {int.from_bytes(r.value[1:5], "big") for r in published.records("t") if r.value}
    versions = [client.get_version("avroout.db.t-value", number) for number in (1, 2)]
    assert ids == {version.schema_id for version in versions}
    names = [
        [f["name"] for f in json.loads(v.schema.schema_str or "")["fields"][0]["type"][1]["fields"]] for v in versions
    ]
    assert (names[0][1], "more" in names[0], "more" in names[1]) == ("a_name", False, True)
    sides = ("beats.avroout", "avroout", "avroout.transaction")
    assert {f"{topic}-{side}" for topic in sides for side in ("key", "value")} <= set(client.get_subjects())


def test_a_change_of_key_names_the_other_key(published: SourceWorkspace, decode: Decode) -> None:
    """A row whose key changed leaves with a delete and a tombstone that name its new key, and arrives with its old."""
    by_key: dict[int, list[Record]] = {}
    for record in published.records("t"):
        by_key.setdefault(decode(record.key)["id"], []).append(record)
    moved = [key for key in range(500) if key % 20 == 3]
    for key in moved:
        read, left, tombstone = by_key[key]
        (came,) = by_key[key + 5000]
        assert [decode(r.value) and decode(r.value)["op"] for r in (read, left, tombstone, came)] == [
            "r",
            "d",
            None,
            "c",
        ]
        assert (decode(left.value)["after"], decode(came.value)["before"]) == (None, None)
        assert left.headers == tombstone.headers == (("__debezium.newkey", f'{{"id":{key + 5000}}}'.encode()),)
        assert came.headers == (("__debezium.oldkey", f'{{"id":{key}}}'.encode()),)
    others = [r for key, records in by_key.items() if key % 5000 not in moved for r in records]
    assert {r.headers for r in others} == {()}


def test_side_topics_hold_transactions_schemas_and_heartbeats(published: SourceWorkspace, decode: Decode) -> None:
    """A snapshot is a transaction whose END counts its events; each schema has an event; heartbeats come."""

    def read(topic: str) -> list[tuple[Any, Any]]:
        return [(decode(r.key), decode(r.value)) for r in published.topics.read(topic)]

    events = [decode(r.value) for r in published.records("t") if r.value is not None]
    orders: dict[str, list[int]] = {}
    for event in events:
        if event["op"] != "r":
            orders.setdefault(event["transaction"]["id"], []).append(event["transaction"]["total_order"])
    bounds = read("avroout.transaction")
    assert [(key["id"], value["id"], value["status"]) for key, value in bounds] == [
        (name, name, status) for name in orders for status in ("BEGIN", "END")
    ]
    assert {value["id"]: value["event_count"] for _, value in bounds[1::2]} == {k: len(v) for k, v in orders.items()}
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in orders.values())
    assert sorted(map(len, orders.values())) == [50, 75, 100]
    assert bounds[1][1]["data_collections"] == [{"data_collection": "db.t", "event_count": 75}]
    changes = read("avroout")
    assert {key["databaseName"] for key, _ in changes} == {"avroout"}
    tables = [value["tableChanges"][0] for _, value in changes]
    assert [(t["type"], t["table"]["primaryKeyColumnNames"]) for t in tables] == [("CREATE", ["id"]), ("ALTER", ["id"])]
    assert [c["name"] for c in tables[1]["table"]["columns"]][-1] == "more"
    beats = read("beats.avroout")
    assert {key["serverName"] for key, _ in beats} == {"avroout"}
    times = [value["ts_ms"] for _, value in beats]
    assert len(times) > 2
    assert times == sorted(times)


def test_offsets_are_shown_and_set(published: SourceWorkspace, host: Host) -> None:
    """`offsets show` names stored and newest snapshot, `reset` only does what it shows when told to execute it."""
    file = str(published.file())
    said = [host.call("offsets", command, file, *options) for command, *options in OFFSETS]
    assert [one.code for one in said] == [0] * 7 + [3], said
    newest = str(published.lake().java("t", "db").currentSnapshot().snapshotId())
    shown, dry, after_dry, forgot, after_forgot, latest, after_latest, unknown = (one.out for one in said)
    # Once as the stored one, once as the table's.
    assert shown.count(newest) == 2
    assert "nothing was changed" in dry
    assert after_dry == shown
    assert "forgotten" in forgot
    assert "nothing was changed" not in forgot
    assert after_forgot.count(newest) == 1
    assert newest in latest
    assert after_latest.count(newest) == 2
    assert "not a table of this source" in unknown + said[-1].log
    assert published.publish() == []


def test_refusals_of_the_registry_say_what_to_do(make_source: MakeSource, client: SchemaRegistryClient) -> None:
    """A schema that a subject's compatibility refuses, or that may not be registered, stops its table and says why."""
    source = make_source("refused")
    source.sql("CREATE TABLE T.t (id INT, v INT) USING iceberg", "INSERT INTO T.t VALUES (1, 1)")
    (port,) = free_ports(1)
    away = {"value.converter.schema.registry.url": f"http://127.0.0.1:{port}", "errors.retry.timeout": "0"}
    with pytest.raises(RetriableError, match=f"registry http://127.0.0.1:{port}: registering a schema under refused"):
        source.publish(away)
    unknown = r"asking for a schema of refused\.db\.t-value: it is not there; .*auto\.register\.schemas=true"
    with pytest.raises(FatalError, match=unknown):
        source.publish({"value.converter.auto.register.schemas": "false"})
    by_record = "value.converter.value.subject.name.strategy"
    source.publish({by_record: "RecordNameStrategy"})
    assert client.get_versions("refused.db.t.Envelope") == [1]
    client.set_config("refused.db.t.Envelope", ServerConfig(compatibility=ConfigCompatibilityLevel.FORWARD))
    source.sql("ALTER TABLE T.t ALTER COLUMN v TYPE BIGINT", "INSERT INTO T.t VALUES (2, 2)")
    said = r"registering a schema under refused\.db\.t\.Envelope: status 409; .* not compatible .*PUT /config/<subject>"
    with pytest.raises(FatalError, match=said):
        source.publish({by_record: "RecordNameStrategy"})
    assert [r.value is None for r in source.records("t")] == [False]
    client.set_config("refused.db.t.Envelope", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    source.publish({by_record: "RecordNameStrategy"})
    assert len(source.records("t")) == 2
