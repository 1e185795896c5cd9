"""Debezium Server's files -> what Kafka Connect's REST interface takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from connector.cli.connect_config import convert_properties
from connector.cli.main import main
from connector.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config" / "debezium-server.properties.example"
MYSQL = {
    "debezium.source.connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "debezium.source.topic.prefix": "shop",
    "debezium.source.database.password": "open",
    "debezium.source.schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    "debezium.source.schema.history.internal.file.filename": "/data/history.dat",
    "debezium.source.schema.history.internal.store.only.captured.tables.ddl": "true",
}


def test_the_example_becomes_a_connector() -> None:
    """The source, its transforms and formats are those of the file; what is the server's own is left out and named."""
    run = CliRunner().invoke(main, ["connect-config", str(EXAMPLE)])
    assert run.exit_code == 0, run.output
    assert '"name": "testc"' in run.stdout
    for line in (
        '"connector.class": "io.debezium.connector.postgresql.PostgresConnector"',
        '"database.password": "${env:POSTGRES_PASSWORD}"',
        '"key.converter": "org.apache.kafka.connect.json.JsonConverter"',
        '"transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"',
        '"value.converter.schemas.enable": "true"',
        '"value.converter.replace.null.with.default": "false"',
        '"transforms.unwrap.replace.null.with.default": "false"',
        '"topic.creation.default.replication.factor": "-1"',
    ):
        assert line in run.stdout
    assert "offset.storage" not in run.stdout and "schema.history" not in run.stdout and "iceberg" not in run.stdout
    assert "note: offset.storage: is the worker's in Kafka Connect, left out" in run.stderr
    assert "schema.history.internal.iceberg.table-name: this connector keeps no history" in run.stderr


def test_what_a_file_says_wins() -> None:
    """Topics are created and nulls are told as such, unless the file says otherwise."""
    own = {
        "debezium.source.topic.creation.default.replication.factor": "2",
        "debezium.format.value.replace.null.with.default": "true",
    }
    found = convert_properties(MYSQL | own).config
    assert found["topic.creation.default.replication.factor"] == "2"
    assert found["value.converter.replace.null.with.default"] == "true"
    assert found["key.converter.replace.null.with.default"] == "false"
    assert "transforms.unwrap.replace.null.with.default" not in found


def test_a_history_of_schemas_moves_to_kafka() -> None:
    """A connector that needs one gets a topic for it, and keeps what else was said of it."""
    found = convert_properties({**MYSQL, "bootstrap.servers": "kafka:9092", "name": "shop-sink"})
    history = {key: text for key, text in found.config.items() if key.startswith("schema.history.internal")}
    assert history == {
        "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
        "schema.history.internal.kafka.topic": "schema-history.shop",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
    }
    assert found.name == "shop-sink"
    assert any(note.startswith("schema.history.internal: ") for note in found.notes)
    assert any(note.startswith("database.password: is in clear text") for note in found.notes)
    assert not any("open" in note for note in found.notes)


def test_a_history_that_is_in_kafka_stays_there() -> None:
    """Its topic is the old one: the connector goes on with what it knows."""
    kept = {"schema.history.internal.kafka.topic": "h", "schema.history.internal.kafka.bootstrap.servers": "k:1"}
    given = {key: text for key, text in MYSQL.items() if "history" not in key}
    found = convert_properties(given | {f"debezium.source.{key}": text for key, text in kept.items()})
    assert {key: found.config[key] for key in kept} == kept


def test_formats_become_converters() -> None:
    """What is said of all sides holds for each of them, unless a side says otherwise."""
    found = convert_properties(
        {
            **MYSQL,
            "debezium.format.key": "json",
            "debezium.format.value": "avro",
            "debezium.format.schema.registry.url": "http://r",
            "debezium.format.key.schemas.enable": "false",
        }
    ).config
    assert found["key.converter.schemas.enable"] == "false"
    assert found["value.converter"] == "io.confluent.connect.avro.AvroConverter"
    assert "value.converter.schemas.enable" not in found
    assert found["key.converter.schema.registry.url"] == found["value.converter.schema.registry.url"] == "http://r"


@pytest.mark.parametrize(
    ("name", "converter"),
    [("avro", "AvroConverter"), ("json", "ExtJsonConverter"), ("jsonbytearray", "ExtJsonConverter")],
)
def test_apicurio_s_own_registry_has_converters_of_its_own(name: str, converter: str) -> None:
    """As in Debezium Server, the URL of Apicurio's own API chooses them; a class that is named wins."""
    given = {**MYSQL, "debezium.format.value": name, "debezium.format.value.apicurio.registry.url": "http://r"}
    found = convert_properties(given).config
    assert found["value.converter"] == f"io.apicurio.registry.utils.converter.{converter}"
    assert found["value.converter.apicurio.registry.url"] == "http://r"
    named = convert_properties({**given, "debezium.format.value.class": "com.example.Own"}).config
    assert named["value.converter"] == "com.example.Own"
    assert "value.converter.class" not in named


@pytest.mark.parametrize("name", ["connect", "jsonbytearray", "json"])
def test_what_debezium_server_s_iceberg_sink_takes_goes_through_kafka_as_json(name: str) -> None:
    """Formats that only its own sink can take become JSON with its schema, which keeps all that they have."""
    found = convert_properties({**MYSQL, "debezium.format.key": name, "debezium.format.value": name}).config
    for side in ("key", "value"):
        assert found[f"{side}.converter"] == "org.apache.kafka.connect.json.JsonConverter"
        assert found[f"{side}.converter.schemas.enable"] == "true"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"debezium.sink.type": "iceberg"}, "debezium.source.connector.class: is not given"),
        ({**MYSQL, "debezium.format.value": "pulsar"}, "debezium.format.value: pulsar has no converter"),
    ],
    ids=["no source", "no converter"],
)
def test_what_cannot_be_converted_is_named(given: dict[str, str], said: str) -> None:
    """A file without a source, or with a format that Kafka Connect lacks, is refused with what to write."""
    with pytest.raises(ConfigError, match=said):
        convert_properties(given)


def test_variables_are_those_of_the_workers_environment() -> None:
    """Kafka Connect would take Debezium Server's form for the value itself; groups of a transform stay as they are."""
    given = MYSQL | {
        "debezium.source.database.hostname": "${DB_HOST:${OTHER}}",
        "debezium.source.database.password": "${DB_PASSWORD}",
        "debezium.transforms.route.replacement": "${NAME}",
    }
    made = convert_properties(given)
    assert made.config["database.hostname"] == "${env:DB_HOST}"
    assert made.config["database.password"] == "${env:DB_PASSWORD}"
    assert made.config["transforms.route.replacement"] == "${NAME}"
    assert (
        "database.hostname: Kafka Connect has no default for DB_HOST, set it in the worker's environment" in made.notes
    )
    assert any("config.providers=env" in note for note in made.notes)
