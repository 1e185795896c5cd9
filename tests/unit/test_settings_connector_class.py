"""`connector.class` -> a sink's or a source's settings, or the name that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from connector.cli.arguments import load_settings
from connector.cli.main import main
from connector.errors import ConfigError
from connector.settings import SourceSettings
from connector.settings.connector_class import ICEBERG_SINK_CLASS, OPENSEARCH_SINK_CLASS, SOURCE_CLASS, find_class
from connector.settings.sink.sink_types import SINK_TYPES, load_sink_type

SINK = "bootstrap.servers=localhost:9092\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\n"
SOURCE = "bootstrap.servers=localhost:9092\ntopic.prefix=p\ntable.include.list=a\niceberg.catalog.warehouse=/w\n"


def _faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "c.properties"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings((file,), ())
    return [fault.removeprefix(f"{file}:") for fault in caught.value.faults]


def test_a_class_that_is_looked_up_is_one_fault(tmp_path: Path) -> None:
    """What a file configures is known before anything is looked up; its other keys are not told as unknown."""
    told = "4: connector.class: is looked up elsewhere, and says what the file configures; write the class itself"
    assert _faults(tmp_path, SINK + "connector.class=${env:CLASS}\ntopic.prefix=p\n") == [told]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("IcebergSource", SOURCE_CLASS),
        ("ICEBERGSOURCE", SOURCE_CLASS),
        ("IcebergConnector", SOURCE_CLASS),
        ("Iceberg", SOURCE_CLASS),
        ("org.apache.iceberg.connect.IcebergSinkConnector", ICEBERG_SINK_CLASS),
        ("io.tabular.iceberg.connect.IcebergSinkConnector", ICEBERG_SINK_CLASS),
        ("IcebergSink", ICEBERG_SINK_CLASS),
        (" OpensearchSink ", OPENSEARCH_SINK_CLASS),
        ("io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector", OPENSEARCH_SINK_CLASS),
        ("IcebergSorce", None),
        ("x", None),
    ],
)
def test_a_class_has_the_short_names_that_connect_gives_it(name: str, full: str | None) -> None:
    """The package, and Connector at the end, may be left out."""
    assert find_class(name) == full


@pytest.mark.parametrize("name", ["OpensearchSink", "OpensearchSinkConnector", OPENSEARCH_SINK_CLASS])
def test_short_names_choose_the_type_of_a_sink(tmp_path: Path, name: str) -> None:
    """Each name of a sink's class means the same type of sink."""
    file = tmp_path / "c.properties"
    file.write_text(f"{SINK}connector.class={name}\nconnection.url=http://localhost:9200\n", "utf-8")
    settings = load_settings((file,), ())
    assert not isinstance(settings, SourceSettings)
    assert settings.sink_type == "opensearch"


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        (SINK, "IcebergSinkConector", "IcebergSinkConnector"),
        (SINK, "org.apache.iceberg.connect.IcbergSinkConnector", "IcebergSinkConnector"),
        (SINK, "OpenserchSinkConnector", "OpensearchSinkConnector"),
        (SOURCE, "IcebergSorce", "IcebergSource"),
        (SOURCE, "io.debezium.connector.iceberg.IcebergConector", "IcebergConnector"),
    ],
)
def test_a_slip_is_one_error_with_the_name_that_was_meant(tmp_path: Path, text: str, name: str, meant: str) -> None:
    """The rest of the file is read as that of the connector that was meant, so that nothing else is wrong with it."""
    (fault,) = _faults(tmp_path, f"{text}connector.class={name}\n")
    where = text.count("\n") + 1
    assert fault.startswith(
        f"{where}: connector.class: '{name}' is no connector of this program; did you mean {meant}? "
    )
    assert all(known in fault for known in (SOURCE_CLASS, ICEBERG_SINK_CLASS, OPENSEARCH_SINK_CLASS))


def test_a_slip_of_debezium_server_s_key_is_told_by_that_key(tmp_path: Path) -> None:
    """A file that names its source as Debezium Server does is told so by the key that it has."""
    (fault,) = _faults(tmp_path, f"debezium.source.connector.class=IcebergSuorce\n{SOURCE}")
    assert fault.startswith("1: debezium.source.connector.class: 'IcebergSuorce' is no connector of this program; did ")


def test_what_else_is_wrong_with_the_file_that_was_meant_is_told_too(tmp_path: Path) -> None:
    """A slip in the class hides no other fault."""
    faults = _faults(tmp_path, f"{SOURCE}connector.class=IcebergSorce\npoll.interval.ms=soon\n")
    assert [fault.split(": ")[1] for fault in faults] == ["connector.class", "poll.interval.ms"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("io.debezium.connector.postgresql.PostgresConnector", "is a connector that runs in Kafka Connect, not here"),
        ("io.debezium.connector.jdbc.JdbcSinkConnector", "is a connector that runs in Kafka Connect, not here"),
        ("com.example.Thing", "is no connector of this program"),
    ],
)
def test_a_connector_of_others_is_one_error(tmp_path: Path, name: str, says: str) -> None:
    """Where nothing tells what was meant, no other key is looked at."""
    (fault,) = _faults(tmp_path, f"connector.class={name}\nplugin.name=pgoutput\nslot.name=s\n")
    assert fault.startswith(f"1: connector.class: '{name}' {says}; {SOURCE_CLASS}")


def test_an_unknown_class_ends_a_command_with_3(tmp_path: Path) -> None:
    """No command takes the file for a sink's."""
    file = tmp_path / "c.properties"
    file.write_text(f"{SINK}connector.class=IcebergSorce\n", "utf-8")
    for command in ("validate", "run", "status", "doctor"):
        assert CliRunner().invoke(main, [command, str(file)]).exit_code == 3


def test_types_of_sinks_have_known_classes() -> None:
    """What a type of sink says its class is, is known as such."""
    classes = {load_sink_type(name).connector_class for name in SINK_TYPES} - {None}
    assert {find_class(name) for name in classes if name} == classes
