"""Files of peers -> settings: examples of Debezium Server Iceberg and Iceberg Kafka Connect, unchanged."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from connector.errors import ConfigError
from connector.settings import SinkSettings, load
from connector.settings.kafka.batching import BatchPace

NEEDED = {"bootstrap.servers": "localhost:9092"}
SERVER = {**NEEDED, "debezium.source.topic.prefix": "testc", "debezium.sink.iceberg.warehouse": "/w"}

# Debezium Server Iceberg's page: every example, by its section.
EXAMPLES = {
    "MaxBatchSizeWait": """\
debezium.sink.batch.batch-size-wait=MaxBatchSizeWait
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.max.batch.size=2048
debezium.source.max.queue.size=16000
debezium.sink.batch.batch-size-wait.max-wait-ms=30000
debezium.sink.batch.batch-size-wait.wait-interval-ms=5000
""",
    "NoBatchSizeWait": "debezium.sink.batch.batch-size-wait=NoBatchSizeWait\n",
    "Iceberg Table Naming Rule": """\
debezium.sink.iceberg.table-namespace=default
database.server.name=testc
debezium.sink.iceberg.table-prefix=cdc_
""",
    "Debezium Offset Storage": """\
debezium.source.offset.storage=io.debezium.server.iceberg.offset.IcebergOffsetBackingStore
debezium.source.offset.storage.iceberg.table-name=debezium_offset_storage_table
""",
    "Debezium Database History Storage": """\
debezium.source.database.history=io.debezium.server.iceberg.history.IcebergSchemaHistory
debezium.source.database.history.iceberg.table-name=debezium_database_history_storage_table
""",
    "Debezium Event Flattening": """\
debezium.transforms=unwrap
debezium.transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState
debezium.transforms.unwrap.add.fields=op,table,source.ts_ns,db
debezium.transforms.unwrap.add.headers=db
debezium.transforms.unwrap.delete.handling.mode=rewrite
""",
    "Without Event Flattening": """\
debezium.sink.iceberg.upsert=false
debezium.sink.iceberg.create-identifier-fields=false
""",
    "icebergevents": "debezium.sink.type=icebergevents\ndebezium.sink.iceberg.catalog-name=default\n",
}
CONNECT = {
    "static by regex": """\
name=events-sink
connector.class=org.apache.iceberg.connect.IcebergSinkConnector
tasks.max=2
topics=events
iceberg.tables=default.events_list,default.events_create
iceberg.tables.route-field=type
iceberg.table.default.events_list.route-regex=list
iceberg.table.default.events_create.route-regex=create
iceberg.catalog.type=rest
iceberg.catalog.uri=https://localhost
iceberg.catalog.credential=x
iceberg.catalog.warehouse=wh
""",
    "dynamic": """\
connector.class=org.apache.iceberg.connect.IcebergSinkConnector
topics=events
iceberg.tables.dynamic-enabled=true
iceberg.tables.route-field=db_table
iceberg.catalog.type=hive
iceberg.catalog.uri=thrift://hive:9083
iceberg.catalog.io-impl=org.apache.iceberg.aws.s3.S3FileIO
iceberg.catalog.warehouse=s3a://bucket/warehouse
iceberg.catalog.client.region=us-east-1
iceberg.hadoop.fs.defaultFS=hdfs://x
""",
    "change data capture": """\
connector.class=io.tabular.iceberg.connect.IcebergSinkConnector
topics.regex=dbz\\\\..*
iceberg.tables.dynamic-enabled=true
iceberg.tables.route-field=_cdc.target
iceberg.tables.cdc-field=_cdc.op
iceberg.tables.auto-create-enabled=true
iceberg.tables.evolve-schema-enabled=true
iceberg.tables.default-id-columns=id
iceberg.tables.default-partition-by=day(created)
iceberg.table.db.orders.partition-by=bucket(id, 4)
iceberg.table.db.orders.id-columns=id,region
iceberg.control.topic=control-iceberg
iceberg.control.commit.interval-ms=60000
iceberg.control.commit.timeout-ms=30000
iceberg.catalog.type=rest
iceberg.catalog.uri=http://localhost
transforms=debezium
transforms.debezium.type=io.tabular.iceberg.connect.transforms.DebeziumTransform
transforms.debezium.cdc.target.pattern=lake_{db}.{table}
""",
}


def _load(tmp_path: Path, text: str, extra: dict[str, str]) -> SinkSettings:
    file = tmp_path / "user.properties"
    file.write_text(text)
    return load([file], {key: value for key, value in extra.items() if key not in text}, {})


@pytest.mark.parametrize("section", EXAMPLES)
def test_the_seeds_examples_run_as_they_are(tmp_path: Path, section: str) -> None:
    """Each example of the page loads with nothing changed; only where Kafka is has to be said."""
    assert _load(tmp_path, EXAMPLES[section], SERVER).name == "icebridge"


@pytest.mark.parametrize("kind", CONNECT)
def test_files_of_iceberg_kafka_connect_run_as_they_are(tmp_path: Path, kind: str) -> None:
    """Each kind of file that its documentation shows loads with nothing changed."""
    assert _load(tmp_path, CONNECT[kind], NEEDED).catalog.name == "iceberg"


def test_max_batch_size_wait_means_what_it_says(tmp_path: Path) -> None:
    """MaxBatchSizeWait: a batch begins with max.batch.size events, or after max-wait-ms; looked at every interval."""
    settings = _load(tmp_path, EXAMPLES["MaxBatchSizeWait"], SERVER)
    assert settings.batch.pace == BatchPace(5_000, 2_048, 30_000)


def test_a_long_commit_interval_holds_no_backlog_up(tmp_path: Path) -> None:
    """Row `commit_interval` (`iceberg.control.commit.interval-ms`): batches follow it, full ones begin at once."""
    settings = _load(tmp_path, CONNECT["static by regex"], NEEDED)
    assert settings.batch.pace == BatchPace(1_000, settings.batch.max_events, 300_000)
    assert attrs.evolve(settings.batch, interval_ms=500).pace == BatchPace(500)


def test_change_data_capture_by_iceberg_kafka_connect(tmp_path: Path) -> None:
    """Operations, keys, partitions and the target of Iceberg's DebeziumTransform mean here what they mean there."""
    settings = _load(tmp_path, CONNECT["change data capture"], NEEDED)
    table = settings.table
    assert (table.upsert, table.keep_deletes, table.op_field) == (True, False, "_cdc.op")
    assert table.routes is not None
    assert table.routes.template == "lake_${source.schema|source.db}.${source.table}"
    assert (table.keys.of("db.orders"), table.keys.of("db.x")) == (("id", "region"), ("id",))
    assert table.keys.key_source("db.x") == "value"
    assert (table.excluded_columns, settings.events.add_fields) == (("__deleted",), ())
    assert table.new_tables.partition_by == ("day(created)",)
    assert table.new_tables.partition_by_table == {"db.orders": ("bucket(id, 4)",)}
    assert (table.auto_create, table.allow_field_addition) == (True, True)
    assert settings.batch.interval_ms == 60_000


def test_its_defaults_are_its_own(tmp_path: Path) -> None:
    """A file of Iceberg Kafka Connect that says nothing more appends, makes no table and adds no column."""
    settings = _load(tmp_path, CONNECT["dynamic"], NEEDED)
    table = settings.table
    assert (table.upsert, table.auto_create, table.allow_field_addition) == (False, False, False)
    assert (table.new_tables.create_identifier_fields, table.keys.key_source("db.x")) == (False, "value")
    assert settings.spark["spark.hadoop.fs.defaultFS"] == "hdfs://x"
    assert settings.catalog.properties["client.region"] == "us-east-1"


def test_a_tables_own_keys_are_found_with_and_without_its_namespace(tmp_path: Path) -> None:
    """`<table>.id-columns` names a table as its other settings do: by its name, or with the namespace in front."""
    keys = _load(tmp_path, CONNECT["change data capture"], NEEDED).table.keys
    assert keys.of("orders", "db.orders") == keys.of("db.orders", "db.orders") == ("id", "region")
    assert keys.of("orders", "other.orders") == ("id",)
    text = "topics=t\niceberg.table.db.orders.id-columns=id\n"
    keys = _load(tmp_path, text, {**NEEDED, **SERVER}).table.keys
    assert [keys.key_source("orders", f"{space}.orders") for space in ("db", "other")] == ["value", "record"]


CONNECTOR_JSON = """\
{
  "name": "events-sink",
  "config": {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": 2,
    "topics.regex": "shop\\\\.public\\\\..*",
    "iceberg.tables.dynamic-enabled": true,
    "iceberg.tables.route-field": "db_table",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://localhost"
  }
}
"""


@pytest.mark.parametrize("inner", [False, True])
def test_a_connectors_json_is_read_as_it_is(tmp_path: Path, inner: bool) -> None:
    """What `POST /connectors` takes, or `PUT .../config`: numbers and truths are texts, and its name is the sink's."""
    text = CONNECTOR_JSON
    if inner:
        text = (
            text[text.index("{", 1) : text.rindex("}")]
            .strip()
            .replace('"connector.class"', '"name": "events-sink",\n"connector.class"')
        )
    (tmp_path / "sink.json").write_text(text)
    settings = load([tmp_path / "sink.json"], NEEDED, {})
    assert settings.name == "events-sink"
    assert settings.kafka.takes("shop.public.orders") and not settings.kafka.takes("shopXpublic.orders")
    assert settings.table.routes is not None and settings.table.routes.dynamic


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (
            '{"name": "s",\n "config": {"topics": "t"}',
            2,
            "begins as JSON and is none: unexpected end of data at column 27",
        ),
        ('{"config":\n {"topics": ["a", "b"]}}', 2, "the value of topics is no text"),
        ('{"config":\n {"topics": null}}', 2, "the value of topics is no text"),
        ('{"config": "topics"}', 1, "`config` is no JSON object"),
        ('{"config": {\n"topics": "t",\n"topicss": "t"}}', 3, "topicss: is not a known key"),
    ],
)
def test_faults_of_a_connectors_json_have_their_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    """As in a properties file: where it stands, what is wrong."""
    file = tmp_path / "sink.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load([file], {**NEEDED, "debezium.sink.iceberg.warehouse": "/w"}, {})
    assert any(fault.startswith(f"{file}:{line}: ") and said in fault for fault in caught.value.faults), caught.value


def test_all_faults_of_a_connectors_json_are_told_at_once(tmp_path: Path) -> None:
    """Each value that is no text, what stands beside the properties, and a key that comes twice, with their lines."""
    text = """{
  "name": "x", "topics": "t",
  "config": {
    "a": "topics.regex",
    "topics": ["t"],
    "iceberg.tables": null,
    "iceberg.catalog.uri": "http://a",
    "iceberg.catalog.uri": "http://b"
  }
}"""
    file = tmp_path / "c.json"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load([file], {}, {})
    told = [fault.removeprefix(f"{file}:").partition(";")[0] for fault in caught.value.faults]
    assert told == [
        "2: topics stands beside `config`",
        "4: a: is not a known key",
        "5: the value of topics is no text",
        "6: the value of iceberg.tables is no text",
    ]
    assert f"{file}:8: iceberg.catalog.uri has another value in line 7 too; line 8 counts" in caught.value.notes


def test_the_login_of_that_sinks_own_clients_is_ours(tmp_path: Path) -> None:
    """`iceberg.kafka.*` says how to get into the same brokers; what the file says without it wins."""
    text = CONNECT["dynamic"] + (
        "iceberg.kafka.security.protocol=SASL_SSL\niceberg.kafka.sasl.mechanism=PLAIN\n"
        'iceberg.kafka.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="secret12";\n'
    )
    client = _load(tmp_path, text, NEEDED).kafka.client("admin")
    assert (client["security.protocol"], client["sasl.mechanisms"]) == ("SASL_SSL", "PLAIN")
    own = _load(tmp_path, text + "security.protocol=SASL_PLAINTEXT\n", NEEDED).kafka.client("admin")
    assert own["security.protocol"] == "SASL_PLAINTEXT"


def test_where_that_sink_left_its_commits_is_not_noted_as_having_no_effect() -> None:
    """`offsets reset --to group` reads the control topic, for the group that is named."""
    given = {"iceberg.control.topic": "c", "iceberg.connect.group-id": "g", "iceberg.control.commit.threads": "1"}
    notes = load([], {"topics": "t", "bootstrap.servers": "h:1", "iceberg.catalog.uri": "http://h"} | given, {}).notes
    assert [note.rpartition(": ")[2] for note in notes] == ["iceberg.control.commit.threads"]


def test_its_catalog_is_understood_in_any_sinks_file() -> None:
    """Who names the catalog as that sink does, and nothing else, has it: it was refused, with a meaningless name."""
    given = {"topics": "t", "bootstrap.servers": "h:1", "iceberg.catalog.uri": "http://h", "iceberg.hadoop.a": "1"}
    settings = load([], given, {})
    assert (settings.catalog.properties["type"], settings.catalog.name) == ("rest", "default")
    assert settings.spark == {"spark.hadoop.a": "1"}


def test_what_has_an_effect_is_not_noted_as_having_none(tmp_path: Path) -> None:
    """The pattern by which Iceberg's transform names tables is read, and said to be nowhere."""
    notes = _load(tmp_path, CONNECT["change data capture"], NEEDED).notes
    assert not any("cdc.target.pattern" in note for note in notes)
    assert any("transforms.debezium.type" in note for note in notes)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("debezium.sink.batch.metrics.snapshot-mbean=debezium.postgres:type=x", "Debezium Server's iceberg sink"),
        ("value.converter.replace.null.with.default=false", "say how messages are written"),
        ("key.converter.enhanced.avro.schema.support=true", "say how messages are written"),
        ("value.converter.optional.for.nullables=true", "say how messages are written"),
        ("value.converter.use.latest.with.metadata=a=b", "say how messages are written"),
        ("key.converter.apicurio.registry.auto-register=true", "say how messages are written"),
        ("value.converter.apicurio.registry.find-latest=true", "say how messages are written"),
        ("value.converter.schemaAutoRegistrationEnabled=true", "say how messages are written"),
        ("value.converter.avroRecordType=GENERIC_RECORD", "say how messages are written"),
    ],
)
def test_documented_keys_that_change_nothing_stop_nothing(tmp_path: Path, line: str, note: str) -> None:
    """They are named in a note."""
    notes = _load(tmp_path, f"{line}\n", SERVER).notes
    assert any(note in said and line.partition("=")[0] in said for said in notes)


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("org.apache.kafka.connect.transforms.InsertField$Value", "collection.name.format=${topic}"),
        ("org.apache.kafka.connect.transforms.RegexRouter", "debezium.sink.iceberg.destination-regexp"),
        ("com.example.Other", "unwrapped without one"),
    ],
)
def test_a_transform_that_is_not_applied_has_its_way_out(tmp_path: Path, kind: str, instead: str) -> None:
    """The message says which option does what the transform is for."""
    text = f"{CONNECT['dynamic']}transforms=one\ntransforms.one.type={kind}\n"
    with pytest.raises(ConfigError, match="is a transform that is not applied here") as caught:
        _load(tmp_path, text, NEEDED)
    assert instead in str(caught.value)
