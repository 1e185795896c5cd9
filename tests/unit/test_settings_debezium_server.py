"""a Debezium Server user's file -> settings: it runs as it is, with bootstrap.servers added."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.errors import ConfigError
from connector.settings import SinkSettings, load
from connector.settings.lineage import LineageSettings

GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
SERVER = """\
debezium.sink.type=iceberg
debezium.sink.iceberg.upsert=false
debezium.sink.iceberg.upsert-keep-deletes=true
debezium.sink.iceberg.type=jdbc
debezium.sink.iceberg.uri=jdbc:postgresql://h/db
debezium.sink.iceberg.warehouse=s3://bucket/warehouse
debezium.sink.iceberg.s3.endpoint=http://minio:9000
debezium.sink.iceberg.table-namespace=a.b
debezium.sink.iceberg.upsert-use-dv=true
debezium.sink.batch.concurrent-uploads=4
debezium.sink.batch.batch-size-wait=NoBatchSizeWait
debezium.source.connector.class=io.debezium.connector.mysql.MySqlConnector
debezium.source.topic.prefix=testc
debezium.source.database.password=${file:/not/here:password}
debezium.source.offset.flush.interval.ms=0
debezium.source.offset.storage.iceberg.table-name=my_offsets
debezium.source.schema.history.internal.iceberg.table-name=h
debezium.source.max.batch.size=4096
debezium.format.value=json
debezium.format.key=json
debezium.format.value.schemas.enable=true
debezium.format.header=json
debezium.transforms=unwrap
debezium.transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState
debezium.transforms.unwrap.add.fields=op,table
debezium.transforms.unwrap.delete.tombstone.handling.mode=rewrite
database.history.skip=true
offset.flush.interval.ms=1
quarkus.log.level=INFO
%dev.quarkus.log.level=DEBUG
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The user's file."""
    path = tmp_path / "application.properties"
    path.write_text(SERVER)
    return path


def sink(**changed: str) -> SinkSettings:
    """Settings of a good configuration with these keys over it."""
    return load([], GOOD | changed, {})


def test_runs_as_it_is(server: Path) -> None:
    """Sink keys mean what they mean there."""
    settings = load([server], {"bootstrap.servers": "b:9092"}, {})
    assert settings.kafka.topics_regex == r"testc\.(?!(?:message|transaction)$).+"
    assert not settings.table.upsert
    assert settings.table.offsets_table == "my_offsets"
    assert settings.catalog.namespace == ("a", "b")
    assert settings.catalog.properties == {
        "type": "jdbc",
        "uri": "jdbc:postgresql://h/db",
        "warehouse": "s3://bucket/warehouse",
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        "s3.endpoint": "http://minio:9000",
    }
    assert settings.events.value_format == "json-schema"
    assert settings.events.key_format == "auto"
    assert settings.events.add_fields == ("op", "table")


def test_debezium_keys_are_named_in_one_note(server: Path) -> None:
    """Keys of the source, the server and its transforms are named in one note, those of the other sink in another."""
    assert load([server], {"bootstrap.servers": "b:9092"}, {}).notes == (
        "these keys configure Debezium itself and have no effect here: %dev.quarkus.log.level, database.history.skip, "
        "debezium.format.header, debezium.source.connector.class, debezium.source.database.password, "
        "debezium.source.offset.flush.interval.ms, "
        "debezium.transforms, "
        "debezium.transforms.unwrap.delete.tombstone.handling.mode, debezium.transforms.unwrap.type, "
        "offset.flush.interval.ms, quarkus.log.level",
        "these keys of Debezium Server's iceberg sink have no effect here: debezium.sink.batch.concurrent-uploads, "
        "debezium.sink.iceberg.upsert-use-dv",
    )


def test_lineage_of_debezium_server(server: Path) -> None:
    """Its sink's key turns lineage on, and the job is described by the keys that its source has for that."""
    text = "debezium.sink.iceberg.openlineage-enabled=true\n"
    job = "debezium.source.openlineage.integration."
    text += f"{job}enabled=true\n{job}job.namespace=lake\n{job}job.tags=env=prod\n{job}config.file.path=/o.yml\n"
    server.write_text(SERVER + text)
    settings = load([server], {"bootstrap.servers": "b:9092"}, {})
    assert settings.lineage == LineageSettings(
        enabled=True, config_file=Path("/o.yml"), namespace="lake", tags=(("env", "prod"),)
    )
    assert f"{job}enabled" in settings.notes[0]
    assert f"{job}job" not in settings.notes[0]
    server.write_text(SERVER + f"{job}enabled=true\n")
    assert not load([server], {"bootstrap.servers": "b:9092"}, {}).lineage.enabled


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("debezium.source.topic.prefix=${PREFIX}\ntopics=a\n", ""),
        ("debezium.source.topic.prefix=two words\ntopics=a\n", ""),
        ("debezium.source.openlineage.integration.job.namespace=${NAMESPACE}\n", "testc"),
        ("debezium.source.openlineage.integration.job.tags=prod\n", "testc"),
        ("debezium.source.openlineage.integration.dataset.kafka.bootstrap.servers=SASL_SSL\n", "testc"),
    ],
)
def test_what_only_debezium_goes_by_is_no_fault(server: Path, text: str, prefix: str) -> None:
    """Where topics are named its prefix names metrics only, and its lineage is its own: both may be by variables that
    this process does not have.
    """
    server.write_text(SERVER + text)
    settings = load([server], {"bootstrap.servers": "b:9092"}, {})
    assert (settings.kafka.prefix, settings.lineage) == (prefix, LineageSettings())


def test_what_lineage_needs_is_a_fault_where_it_is_on(server: Path) -> None:
    """The same keys stop the start where the sink tells its runs."""
    server.write_text(
        f"{SERVER}debezium.sink.iceberg.openlineage-enabled=true\n"
        "debezium.source.openlineage.integration.job.tags=prod\n"
    )
    with pytest.raises(ConfigError, match="is no list of pairs"):
        load([server], {"bootstrap.servers": "b:9092"}, {})


def test_only_bootstrap_servers_is_missing(server: Path) -> None:
    """Without bootstrap.servers that is the one fault."""
    with pytest.raises(ConfigError) as caught:
        load([server], environ={})
    assert caught.value.faults == (f"{server}: bootstrap.servers: is missing; add it as host:port of a Kafka broker",)


def test_defaults_are_the_sinks() -> None:
    """Names and defaults are those of Debezium Server's iceberg sink."""
    table = sink().table
    assert (table.upsert, table.keep_deletes, table.dedup_column, table.op_field) == (
        True,
        True,
        "__source_ts_ns",
        "__op",
    )
    names, made = table.names, table.new_tables
    assert (names.prefix, names.case, made.write_format) == ("", "keep", "parquet")
    assert (made.create_identifier_fields, table.allow_field_addition, made.preserve_required) == (True, True, False)
    assert table.offsets_table == "_debezium_offset_storage"
    assert sink().catalog.namespace == ("default",)
    assert sink().catalog.name == "default"
    assert sink().events.add_fields == ("op", "table", "source.ts_ns", "db", "ts_ms")


def test_unwrap_under_another_name() -> None:
    """The unwrap transform's fields are found whatever it is called, told by its type."""
    kind = "io.debezium.transforms.ExtractNewRecordState"
    events = sink(
        **{"transforms": "flat", "transforms.flat.type": kind, "transforms.flat.add.fields": "op:o,lsn"},
    ).events
    assert events.add_fields == ("op:o", "lsn")


@pytest.mark.parametrize("family", ["debezium.transforms", "transforms"])
def test_fields_that_a_transform_drops_are_noted(family: str) -> None:
    """Updates without what did not change look like rows in which it is null, and only the file tells that they are."""
    transform = {family: "u", f"{family}.u.type": "io.debezium.transforms.ExtractNewRecordState"}
    key = f"{family}.u.drop.fields.header.name"
    notes = load([], GOOD | transform | {key: "Unchanged"}, {}).notes
    assert f"{key}: fields that the transform leaves out of an update become null in its row" in notes
    assert not any("null" in note for note in load([], GOOD | transform, {}).notes)


def test_no_added_fields() -> None:
    """An empty list of added fields, or an empty prefix, means none."""
    unwrap = "debezium.transforms.unwrap.add.fields"
    events = sink(**{unwrap: "", f"{unwrap}.prefix": ""}).events
    assert (events.add_fields, events.add_fields_prefix) == ((), "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "auto"),
        ({"debezium.format.value": "json"}, "auto"),
        ({"debezium.format.value": "connect"}, "auto"),
        ({"debezium.format.value.schemas.enable": "false"}, "json"),
        ({"debezium.format.value.schemas.enable": "true"}, "json-schema"),
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, "json-schema"),
        ({"value.converter.schemas.enable": "false"}, "json"),
        (
            {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "debezium.format.value.schemas.enable": "true",
            },
            "json",
        ),
    ],
)
def test_value_format(given: dict[str, str], expected: str) -> None:
    """A converter fixes the format, then Debezium's word about schemas; otherwise each message is looked at."""
    assert sink(**given).events.value_format == expected


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"uri": "https://h/api", "warehouse": "name"}, "rest"),
        ({"uri": "thrift://h:9083"}, "hive"),
        ({"uri": "jdbc:sqlite:/x.db"}, "jdbc"),
    ],
)
def test_catalog_type_from_uri(given: dict[str, str], kind: str) -> None:
    """Without a type the URI tells the kind of catalog."""
    settings = sink(**{f"debezium.sink.iceberg.{key}": text for key, text in given.items()})
    assert settings.catalog.properties["type"] == kind


@pytest.mark.parametrize("warehouse", ["/w/h", "file:/w/h", "file:///w/h", "file://localhost/w/h"])
def test_embedded_catalog(warehouse: str) -> None:
    """With nothing but a local warehouse the catalog is JDBC on an SQLite file inside it."""
    assert sink(**{"debezium.sink.iceberg.warehouse": warehouse}).catalog.properties == {
        "type": "jdbc",
        "uri": "jdbc:sqlite:/w/h/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
    }


def test_relative_warehouse_becomes_absolute() -> None:
    """A relative path is made absolute, the name of a REST catalog's warehouse is not."""
    path = sink(**{"debezium.sink.iceberg.warehouse": "w"}).catalog.properties["warehouse"]
    rest = {"debezium.sink.iceberg.type": "rest", "debezium.sink.iceberg.uri": "http://h"}
    name = sink(**{"debezium.sink.iceberg.warehouse": "w"}, **rest).catalog.properties
    assert (path, name["warehouse"]) == (str(Path.cwd() / "w"), "w")


def test_own_catalog_needs_no_warehouse() -> None:
    """A REST catalog or an own one can do without warehouse, the others cannot."""
    for key, text in (("uri", "http://h"), ("catalog-impl", "a.B")):
        assert load([], {**GOOD, f"debezium.sink.iceberg.{key}": text, "debezium.sink.iceberg.warehouse": ""}, {})
    with pytest.raises(ConfigError, match=r"configuration: debezium\.sink\.iceberg\.warehouse: is missing"):
        sink(**{"debezium.sink.iceberg.type": "hive", "debezium.sink.iceberg.warehouse": ""})


@pytest.mark.parametrize("kind", ["jdbc", "rest", "nessie"])
def test_a_catalog_that_is_elsewhere_needs_its_address(kind: str) -> None:
    """Iceberg would only say so once Spark runs."""
    with pytest.raises(ConfigError, match=rf"configuration: debezium\.sink\.iceberg\.uri: is missing, and a {kind}"):
        sink(**{"debezium.sink.iceberg.type": kind})


@pytest.mark.parametrize(
    ("warehouse", "what"),
    [
        ("~/w", "begins with what only a shell"),
        ("$HOME/w", "begins with what only a shell"),
        ("file://~/w", "begins with what only a shell"),
        ('"/w"', "is in quotes"),
    ],
)
def test_a_warehouse_that_only_a_shell_knows_is_a_fault(warehouse: str, what: str) -> None:
    """It would be a folder `~` below the current one."""
    with pytest.raises(ConfigError, match=rf"-X: debezium\.sink\.iceberg\.warehouse: {what}"):
        sink(**{"debezium.sink.iceberg.warehouse": warehouse})


@pytest.mark.parametrize(
    ("name", "converter"),
    [
        ("avro", "AvroConverter"),
        ("protobuf", "ProtobufConverter"),
        ("cloudevents", "CloudEventsConverter"),
        ("simplestring", "StringConverter"),
        ("binary", "ByteArrayConverter"),
    ],
)
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_format_of_debezium_server_names_its_converter(side: str, name: str, converter: str) -> None:
    """Debezium Server's formats besides JSON are read by a converter: the error has the line to write."""
    given = {"topics": "t", "bootstrap.servers": "h:1", "debezium.sink.iceberg.warehouse": "/w"}
    registry = rf", with {side}\.converter\.schema\.registry\.url" if name in {"avro", "protobuf"} else ""
    own = rf"; for Apicurio's own API, \S+ with {side}\.converter\.apicurio\.registry\.url" if name == "avro" else ""
    with pytest.raises(ConfigError, match=rf"{side}\.converter=\S+\.{converter} instead{registry}{own}$"):
        load([], given | {f"debezium.format.{side}": name}, {})
    with pytest.raises(ConfigError, match="write json or jsonbytearray or connect"):
        load([], given | {f"debezium.format.{side}": "arvo"}, {})
