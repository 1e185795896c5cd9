"""The pages on migration, done word for word, with Kafka Connect and the connectors that users come from."""

from __future__ import annotations

import base64
import gzip
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from connector.demo.servers.ports import LOOPBACK
from connector.sink.takeover.control_events import parse_written_data
from tests.clients.lake import Lake, Row
from tests.clients.topics import Topics
from tests.harness.waiting import wait_until
from tests.interop.connect import Connect
from tests.interop.page_reader import PageReader
from tests.interop.postgres import DATABASE, USER, Postgres
from tests.model.recordings import Record
from tests.runs.processes import PATIENCE, catalog
from tests.servers.shared import SharedBroker

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(1200)]

Rows = dict[int, str]
_HERE = {"spark.master": "local[2]", "spark.driver.memory": "1g", "listeners": "", "quarkus.http.port": "-1"}
"""What a test's machine needs: less memory, and no ports that are taken."""


class Worker(Connect):
    """A worker with Debezium's connector for PostgreSQL and with Iceberg's sink."""

    plugins = ("postgres-source", "iceberg-connect")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask its REST interface. ConnectorFailed with its reason."""
        return self._call(method, path, body)


@pytest.fixture(scope="module")
def worker(broker: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One worker for all pages."""
    with Worker(tmp_path_factory.mktemp("worker"), broker.bootstrap_servers) as running:
        yield running


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A PostgreSQL that Debezium can read from."""
    with Postgres({"wal_level": "logical"}) as running:
        yield running


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")


def _rows(lake: Lake, table: str) -> list[Row]:
    """What Iceberg reads, nothing where there is no table yet."""
    try:
        return lake.rows(table)
    except AnalysisException:
        return []


def _server_file(home: Path, server: str, database: Postgres) -> dict[str, str]:
    """A file of Debezium Server Iceberg, as its documentation has one for PostgreSQL."""
    sink = {f"debezium.sink.iceberg.{key}": value for key, value in catalog(home).items()}
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "io.debezium.server.iceberg.offset.IcebergOffsetBackingStore",
        "offset.storage.iceberg.table-name": "_debezium_offset_storage",
        "offset.flush.interval.ms": "0",
        "schema.history.internal": "io.debezium.server.iceberg.history.IcebergSchemaHistory",
        "schema.history.internal.iceberg.table-name": "_debezium_database_history_storage",
        "database.hostname": LOOPBACK,
        "database.port": str(database.port),
        "database.user": USER,
        "database.password": "any",
        "database.dbname": DATABASE,
        "plugin.name": "pgoutput",
        "slot.name": server,
        "publication.name": server,
        "publication.autocreate.mode": "filtered",
        "topic.prefix": server,
        "table.include.list": f"{server}.customers",
    }
    return {
        "debezium.sink.type": "iceberg",
        "debezium.sink.iceberg.upsert": "true",
        "debezium.sink.iceberg.upsert-keep-deletes": "true",
        "debezium.sink.iceberg.table-prefix": "debeziumcdc_",
        "debezium.sink.iceberg.table-namespace": "default",
        "debezium.sink.iceberg.catalog-name": server,
        **sink,
        **{f"debezium.source.{key}": value for key, value in source.items()},
        "debezium.transforms": "unwrap",
        "debezium.transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "debezium.transforms.unwrap.add.fields": "op,table,source.ts_ns,db,ts_ms",
        "debezium.transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "debezium.format.value": "connect",
        "debezium.format.key": "connect",
    }


def _make_their_table(home: Path, server: str, name: str, rows: Rows) -> None:
    """A table as Debezium Server Iceberg makes one, with rows that it wrote."""
    names: dict[str, Any] = {"id": IntegerType(), "name": StringType()}
    names |= {"__op": StringType(), "__table": StringType(), "__source_ts_ns": LongType(), "__db": StringType()}
    names |= {"__ts_ms": TimestamptzType(), "__deleted": StringType()}
    fields = [
        NestedField(number, column, kind, required=column == "id")
        for number, (column, kind) in enumerate(names.items(), start=1)
    ]
    lake = SqlCatalog(server, uri=f"sqlite:///{home / 'catalog.db'}", warehouse=str(home / "warehouse"))
    lake.create_namespace_if_not_exists("default")
    schema = Schema(*fields, identifier_field_ids=[1])
    table = lake.create_table(("default", name), schema, properties={"format-version": "2"})
    own = {
        "__op": "r",
        "__table": "customers",
        "__source_ts_ns": 1_000_000,
        "__db": DATABASE,
        "__ts_ms": datetime.fromtimestamp(1, UTC),
    }
    told = [{"id": key, "name": text, **own, "__deleted": "false"} for key, text in rows.items()]
    table.append(pa.Table.from_pylist(told, schema=table.schema().as_arrow()))


def _make_customers(database: Postgres, server: str) -> None:
    database.run_script(
        f"CREATE SCHEMA {server};"
        f"CREATE TABLE {server}.customers (id int PRIMARY KEY, name text);"
        f"ALTER TABLE {server}.customers REPLICA IDENTITY FULL;"
        f"INSERT INTO {server}.customers VALUES (1, 'Sally'), (2, 'George'), (3, 'Edward');"
    )


def _live(lake: Lake, table: str) -> Rows:
    return {row["id"]: row["name"] for row in _rows(lake, table) if row["__deleted"] == "false"}


def _is(rows: Callable[[], Rows], wanted: Rows) -> Callable[[], bool]:
    return lambda: rows() == wanted


def test_a_file_of_debezium_server_reaches_its_rows(
    broker: SharedBroker, worker: Worker, database: Postgres, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """With one line added, the steps of the page lead to a table of Debezium Server that follows the database again."""
    (tmp_path / "warehouse").mkdir()
    _make_customers(database, "dsi")
    lake = Lake(spark, "dsi", catalog(tmp_path))
    _make_their_table(tmp_path, "dsi", "debeziumcdc_dsi_dsi_customers", {1: "Sally of old", 2: "George"})
    file = _server_file(tmp_path, "dsi", database) | {"bootstrap.servers": broker.bootstrap_servers} | _HERE
    _write(tmp_path / "application.properties", file)
    reader = PageReader("how-to/from-debezium-server.md", tmp_path, {"http://localhost:8083": worker.url})
    reader.follow("icebridge connect-config")
    reader.follow("@connector.json")
    reader.follow("icebridge validate --connect")
    wait_until(lambda: bool(topics.read("dsi.dsi.customers")) or worker.check("dsi") is not None, PATIENCE * 60)
    with reader.running("icebridge run") as wait:
        wait(_is(lambda: _live(lake, "debeziumcdc_dsi_dsi_customers"), {1: "Sally", 2: "George", 3: "Edward"}))
        database.run("UPDATE dsi.customers SET name = 'Anne' WHERE id = 2")
        database.run("DELETE FROM dsi.customers WHERE id = 3")
        wait(_is(lambda: _live(lake, "debeziumcdc_dsi_dsi_customers"), {1: "Sally", 2: "Anne"}))
    assert sorted(row["id"] for row in _rows(lake, "debeziumcdc_dsi_dsi_customers")) == [1, 2, 3]
    worker.check("dsi")
    worker.delete("dsi")


def test_a_position_of_debezium_server_is_continued(
    broker: SharedBroker, worker: Worker, database: Postgres, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """The new connector goes on at the stored position: no row is read again, and nothing in between is missed."""
    (tmp_path / "warehouse").mkdir()
    _make_customers(database, "goes")
    lake = Lake(spark, "goes", catalog(tmp_path))
    file = _server_file(tmp_path, "goes", database) | {"bootstrap.servers": broker.bootstrap_servers} | _HERE
    _write(tmp_path / "application.properties", file)
    names = {
        "http://localhost:8083": worker.url,
        "connectors/shop/": "connectors/goes/",
        '"server": "shop"': '"server": "goes"',
    }
    reader = PageReader("how-to/from-debezium-server.md", tmp_path, names)
    reader.follow("icebridge connect-config")
    told = json.loads((tmp_path / "connector.json").read_text())
    worker.create("kafka", told["config"])  # in the place of Debezium Server, which calls its connector so
    wait_until(lambda: len(topics.read("goes.goes.customers")) == 3, PATIENCE * 60)
    database.run("INSERT INTO goes.customers VALUES (4, 'Anne')")
    wait_until(lambda: len(topics.read("goes.goes.customers")) == 4, PATIENCE * 60)
    worker.ask("PUT", "/connectors/kafka/stop")
    wait_until(lambda: worker.ask("GET", "/connectors/kafka/status")["connector"]["state"] == "STOPPED", PATIENCE * 60)
    (stored,) = worker.ask("GET", "/connectors/kafka/offsets")["offsets"]
    worker.delete("kafka")
    database.run("INSERT INTO goes.customers VALUES (5, 'Kim')")
    database.run("UPDATE goes.customers SET name = 'Sal' WHERE id = 1")
    assert stored["partition"] == {"server": "goes"}
    names['{"lsn": 23876504, "txId": 571}'] = json.dumps(stored["offset"])
    (tmp_path / "connector.json").write_text(json.dumps({**told, "initial_state": "STOPPED"}))
    for part in ("@connector.json", "PATCH", "resume"):
        reader.follow(part)
    wanted = {1: "Sal", 2: "George", 3: "Edward", 4: "Anne", 5: "Kim"}
    with reader.running("icebridge run") as wait:
        wait(_is(lambda: _live(lake, "debeziumcdc_goes_goes_customers"), wanted))
    sent = [orjson.loads(record.value)["payload"] for record in topics.read("goes.goes.customers") if record.value]
    assert Counter(event["__op"] for event in sent) == {"r": 3, "c": 2, "u": 1}
    worker.check("goes")
    worker.delete("goes")


EACH = 400


def _events(topic: str, first: int) -> list[Record]:
    return [
        Record(topic, number % 2, number, None, orjson.dumps({"id": number, "name": f"n{number}"}))
        for number in range(first, first + EACH)
    ]


def _sink_file(name: str, home: Path) -> dict[str, str]:
    """A configuration of Iceberg's sink, which appends and commits every two seconds."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": f"{name}.events",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "iceberg.tables": "default.events",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": f"{name}-control",
        "iceberg.control.commit.interval-ms": "2000",
        "iceberg.catalog": name,
        **{f"iceberg.catalog.{key}": value for key, value in catalog(home).items()},
        "iceberg.catalog.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
    }


def _stop(worker: Worker, name: str) -> None:
    worker.ask("PUT", f"/connectors/{name}/stop")
    wait_until(
        lambda: worker.ask("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED", PATIENCE * 60
    )


def _load_by_theirs(
    name: str, broker: SharedBroker, worker: Worker, topics: Topics, spark: SparkSession, home: Path
) -> tuple[Lake, PageReader]:
    """Have Iceberg's connector fill a table; return the table's lake, and the page's reader, who has the file."""
    (home / "warehouse").mkdir()
    config = _sink_file(name, home)
    topics.create({f"{name}-control": 1})
    lake = Lake(spark, name, catalog(home))
    topics.replay(_events(f"{name}.events", 0))
    assert _rows(lake, "events") == []  # so Spark makes the catalog's tables: two tasks at once fail
    worker.create(name, config)
    wait_until(lambda: len(_rows(lake, "events")) == EACH, PATIENCE * 90)
    (home / "sink.json").write_text(json.dumps({"name": name, "config": {**config, **_HERE}}))
    page = "how-to/from-iceberg-kafka-connect.md"
    return lake, PageReader(page, home, {"broker:9092": broker.bootstrap_servers})


def _take_over(reader: PageReader, lake: Lake, count: int) -> None:
    """Take the offsets over and run until the table has so many rows: each event is there once."""
    reader.follow("--to group --execute")
    with reader.running("icebridge run") as wait:
        wait(lambda: len(_rows(lake, "events")) >= count)
    assert Counter(row["id"] for row in _rows(lake, "events")) == dict.fromkeys(range(count), 1)


def test_offsets_of_iceberg_kafka_connect_are_taken_over(
    broker: SharedBroker, worker: Worker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """The sink begins where Iceberg's connector has ended: each event is in the table once."""
    lake, reader = _load_by_theirs("ikc", broker, worker, topics, spark, tmp_path)
    reader.follow("icebridge validate")
    _stop(worker, "ikc")
    topics.replay(_events("ikc.events", EACH), create=False)
    _take_over(reader, lake, 2 * EACH)
    worker.delete("ikc")


def _read_control(broker: SharedBroker, topic: str) -> dict[int, bytes]:
    """The committed events of a control topic of one partition by offset; markers of transactions have offsets too."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "tests", "enable.partition.eof": True}
    client = Consumer({**config, "isolation.level": "read_committed", "enable.auto.commit": False})
    client.assign([TopicPartition(topic, 0, 0)])
    values: dict[int, bytes] = {}
    while (message := client.poll(PATIENCE * 60)) is not None and message.error() is None:
        values[message.offset() or 0] = message.value() or b""
    client.close()
    return values


def _written(values: Mapping[int, bytes]) -> int:
    """How many rows the workers have told of."""
    return sum(event.rows for event in map(parse_written_data, values.values()) if event is not None)


def _keep(values: Mapping[int, bytes], home: Path) -> None:
    """Keep events and the table's summary for tests without servers, where ICEBRIDGE_RECORD names a folder."""
    if kept := os.environ.get("ICEBRIDGE_RECORD"):
        lake = SqlCatalog("left", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=str(home / "warehouse"))
        snapshot = lake.load_table("default.events").current_snapshot()
        assert snapshot is not None and snapshot.summary is not None
        events = {str(offset): base64.b64encode(value).decode() for offset, value in values.items()}
        told = {"summary": snapshot.summary.additional_properties, "events": events}
        with gzip.open(Path(kept) / "iceberg_kafka_connect.json.gz", "wt") as file:
            json.dump(told, file)


def _foreign(values: Mapping[int, bytes]) -> list[Record]:
    """What else a control topic may hold: another connector's events, and what is none."""
    others = [value.replace(b"connect-left", b"connect-mine") for value in values.values()]
    return [Record("left-control", 0, at, None, value) for at, value in enumerate([*others, b"garbage", None])]


def test_rows_that_iceberg_kafka_connect_has_not_committed_are_not_left_out(
    broker: SharedBroker, worker: Worker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """Stopped between files and their commit, the connector has to commit first: then each event is there once."""
    lake, reader = _load_by_theirs("left", broker, worker, topics, spark, tmp_path)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None, timeout=60)) as locked:
        locked.execute("BEGIN IMMEDIATE")  # tables can be read, and no commit gets in
        topics.replay(_events("left.events", EACH), create=False)
        wait_until(lambda: _written(_read_control(broker, "left-control")) == 2 * EACH, PATIENCE * 60)
        _keep(_read_control(broker, "left-control"), tmp_path)
        _stop(worker, "left")
    assert len(_rows(lake, "events")) == EACH
    with pytest.raises(AssertionError, match=rf"exit 1[\s\S]*{EACH} rows that are not in default\.events"):
        reader.follow("--to group --execute")
    worker.ask("PUT", "/connectors/left/resume")
    wait_until(lambda: len(_rows(lake, "events")) == 2 * EACH, PATIENCE * 90)
    _stop(worker, "left")
    topics.replay(_foreign(_read_control(broker, "left-control")), create=False)
    topics.replay(_events("left.events", 2 * EACH), create=False)
    _take_over(reader, lake, 3 * EACH)
    worker.delete("left")
