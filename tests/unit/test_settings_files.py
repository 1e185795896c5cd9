"""properties files -> settings: syntax, layers, overrides, providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.errors import ConfigError
from connector.settings import SinkSettings, load

BASE = "bootstrap.servers=localhost:9092\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\n"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a properties file below the test's directory."""

    def put(text: str, name: str = "sink.properties") -> Path:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return put


def sink(write: Write, text: str = "", **environ: str) -> SinkSettings:
    """Settings of a good file that goes on with this text."""
    return load([write(BASE + text)], environ=environ)


def faults(write: Write, text: str, **environ: str) -> tuple[str, ...]:
    """Faults of a good file that goes on with this text, without the directory."""
    with pytest.raises(ConfigError) as caught:
        load([write(BASE + text)], environ=environ)
    return tuple(fault.split("/")[-1] if fault.startswith("/") else fault for fault in caught.value.faults)


def test_continuation_joins_lines(write: Write) -> None:
    """A backslash at the end of a line continues it, and the next line's indent is dropped."""
    assert sink(write, "debezium.sink.iceberg.excluded-columns=a,\\\n    b\n").table.excluded_columns == ("a", "b")


def test_escapes_and_separators(write: Write) -> None:
    """Java's escapes, a colon or a blank as separator, and comments of both kinds are understood."""
    text = "! c\n# c\nname : a\\u0062c\ndebezium.sink.iceberg.table-prefix x\\:y\\=z_\n"
    settings = sink(write, text)
    assert (settings.name, settings.table.names.prefix) == ("abc", "x:y=z_")


def test_utf8(write: Write) -> None:
    """A file is UTF-8."""
    assert sink(write, "debezium.sink.iceberg.table-prefix=größe_\n").table.names.prefix == "größe_"


def test_later_layer_wins(write: Write) -> None:
    """A later file wins over an earlier one, an override over all files, a later line over an earlier one."""
    first = write(BASE + "name=a\nname=b\nerrors.retry.timeout=1\nerrors.retry.delay.max.ms=1\n")
    second = write("errors.retry.timeout=2\nerrors.retry.delay.max.ms=2\n", "second.properties")
    settings = load([first, second], {"errors.retry.delay.max.ms": "3"})
    assert (settings.name, settings.errors.retry_timeout_ms, settings.errors.retry_delay_max_ms) == ("b", 2, 3)


def test_empty_override_takes_back(write: Write) -> None:
    """An empty text in a later layer brings the default back."""
    assert load([write(BASE + "name=a\n")], {"name": ""}).name == "icebridge"


def test_later_alias_wins_over_earlier_name(write: Write) -> None:
    """An alias in a later layer wins over the name in an earlier one."""
    path = write(BASE.replace("topics=t", "debezium.source.topic.prefix=a"))
    assert load([path], {"database.server.name": "b"}).kafka.topics_regex == r"b\.(?!(?:message|transaction)$).+"


def test_environment_provider(write: Write) -> None:
    """${env:NAME} is the environment's variable, inside a longer text too."""
    settings = sink(write, "debezium.sink.iceberg.table-prefix=a_${env:X}_${env:Y}\n", X="b", Y="c")
    assert settings.table.names.prefix == "a_b_c"


def test_file_provider(write: Write) -> None:
    """${file:/path:key} is a key of another properties file; what it holds is not searched again."""
    secrets = write("user=${env:NOT_SEARCHED}\n", "secrets.properties")
    settings = sink(write, f"debezium.sink.iceberg.jdbc.user=${{file:{secrets}:user}}\n")
    assert settings.catalog.properties["jdbc.user"] == "${env:NOT_SEARCHED}"


def test_dir_provider(write: Write, tmp_path: Path) -> None:
    """${dir:/path:file} is the content of a file right in that directory."""
    write("s3cret", "password")
    settings = sink(write, f"debezium.sink.iceberg.jdbc.password=${{dir:{tmp_path}:password}}\n")
    assert settings.catalog.properties["jdbc.password"] == "s3cret"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (
            "${env:NONE}",
            "cannot be resolved: the environment has no such variable; provide it or correct the reference",
        ),
        ("${file:/none:k}", "cannot be resolved: the file cannot be read; provide it or correct the reference"),
        (
            "${dir:/none:k}",
            "cannot be resolved: the directory has no such readable file; provide it or correct the reference",
        ),
        (
            "${dir:/:../etc/hostname}",
            "cannot be resolved: it must name a directory and a file right in it; provide it or correct the reference",
        ),
        ("${vault:a:b}", "names an unknown provider; use env, file or dir, or a variable in capitals"),
        ("${PREFIX}", "names no provider; write ${env:PREFIX}"),
    ],
)
def test_unresolvable_reference(write: Write, reference: str, why: str) -> None:
    """A reference that nothing answers is a fault that names line, key and reference."""
    with pytest.raises(ConfigError) as caught:
        sink(write, f"debezium.sink.iceberg.table-prefix={reference}\n")
    assert str(caught.value).endswith(f"sink.properties:4: debezium.sink.iceberg.table-prefix: {reference} {why}")


def test_unused_reference_is_not_looked_up(write: Write) -> None:
    """What configures Debezium itself is not looked up: its secrets need not be here."""
    assert sink(write, "debezium.source.database.password=${file:/none:k}\n").notes


def test_java_group_is_no_reference(write: Write) -> None:
    """${name} in the replacement of destination-regexp is a group of the expression."""
    text = "debezium.sink.iceberg.destination-regexp=(?<a>x)\ndebezium.sink.iceberg.destination-regexp-replace=${a}\n"
    assert sink(write, text).table.names.destination_regexp_replace == "${a}"


def test_unreadable_file_hides_missing_keys(tmp_path: Path) -> None:
    """When a file cannot be read, what it may have held is not called missing."""
    with pytest.raises(ConfigError) as caught:
        load([tmp_path / "none.properties"])
    assert caught.value.faults == (
        f"{tmp_path}/none.properties: cannot be read (No such file or directory); check the path and its rights",
    )


def test_broken_escape_names_its_line(write: Write) -> None:
    """A broken unicode escape and bytes that are not UTF-8 are faults with their line."""
    path = write(BASE + "name=\\u12\n")
    latin = path.with_name("latin.properties")
    latin.write_bytes(b"# x\nname=\xff\n")
    with pytest.raises(ConfigError) as caught:
        load([path, latin])
    assert caught.value.faults == (
        f"{path}:4: a \\u escape is broken; write \\u and four hex digits",
        f"{latin}:2: is not UTF-8; save the file as UTF-8 or write \\uXXXX",
    )


def test_a_resource_of_kubernetes_is_one_fault(write: Write) -> None:
    """What Strimzi's operator reads is told as such; each of its lines was an unknown key."""
    text = "# a connector\n---\napiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nspec:\n  class: x\n"
    with pytest.raises(ConfigError) as caught:
        load([write(text)], environ={})
    (fault,) = caught.value.faults
    assert "sink.properties: is a resource of Kubernetes, which is not read; write what is below spec.config" in fault


@pytest.mark.parametrize("text", ['[{"name": "a"}]', '\n[ "a" ]', "[]"])
def test_a_json_list_is_one_fault(write: Write, text: str) -> None:
    """Several connectors of Kafka Connect in one file are told as such; each line was an unknown key."""
    with pytest.raises(ConfigError) as caught:
        load([write(text)], environ={})
    (fault,) = caught.value.faults
    assert "sink.properties: is a JSON list, and a file has one connector" in fault


def test_lines_count_continuations_and_all_line_ends(write: Write) -> None:
    """A fault's line is the first of its entry, whatever came before it."""
    text = "#\r\n\r\nname=a\\\r\n  b\r\n   \nerrors.tolerance=x\n"
    assert faults(write, text) == ("sink.properties:9: errors.tolerance: 'x' is not known; write all or none",)


def test_every_line_that_cannot_be_read_is_told_with_what_else_is_wrong(tmp_path: Path) -> None:
    """A dozen faults of all kinds in one file are one error, in the order of their lines; no value that is secret."""
    path = tmp_path / "sink.properties"
    path.write_bytes(
        b"bootstrap.servers=nowhere\n"
        b"topcs=t\n"
        b"name=a\\u12\n"
        b"topics=t\n"
        b"debezium.sink.type=icberg\n"
        b"debezium.sink.iceberg.table-prefix=gr\xf6\xdfe_\n"
        b"! a comment in Latin 1 stops nothing: \xf6\n"
        b"debezium.sink.iceberg.upsert : \\\n  perhaps\n"
        b"debezium.sink.batch.max-events\t0\n"
        b"debezium.sink.iceberg.s3.secret-access-key=${vault:s3:key}\n"
        b"debezium.sink.iceberg.warehouse=/w\n"
        b"table.include.list=a.b\n"
        b"debezium.sink.iceberg.destination-regexp=(\n"
        b"errors.tolerance=some\n"
        b"value.converter=AvroConvertor\n"
    )
    with pytest.raises(ConfigError) as caught:
        load([path], environ={})
    told = [fault.removeprefix(f"{path}:").partition(": ")[0] for fault in caught.value.faults]
    assert told == ["1", "2", "3", "5", "6", "8", "10", "11", "13", "14", "15", "16"]
    assert not any("Traceback" in fault or "\n" in fault for fault in caught.value.faults)


def test_a_key_with_two_values_is_noted_with_both_lines(write: Write) -> None:
    """Java takes the last and says nothing; no value is shown. The same value twice is nothing to say."""
    text = "name=a\ndebezium.sink.iceberg.token=aaa\n\nname=b\ndebezium.sink.iceberg.token=bbb\ntopics=t\n"
    settings = sink(write, text)
    where = write("").parent / "sink.properties"
    assert settings.name == "b"
    assert settings.notes == (
        f"{where}:7: name has another value in line 4 too; line 7 counts",
        f"{where}:8: debezium.sink.iceberg.token has another value in line 5 too; line 8 counts",
    )


def test_keys_of_two_files_are_no_repetition(write: Write) -> None:
    """To have a later file say something else is what several files are for."""
    assert load([write(BASE + "name=a\n"), write("name=b\n", "b.properties")], environ={}).notes == ()


@pytest.mark.parametrize("key", ["%prod.name", "%{prod,staging}.name", "%{dev,prod}.name"])
def test_the_profile_that_debezium_server_runs_with_counts(write: Write, key: str) -> None:
    """What is said for Quarkus's profile prod wins over the same key without a profile, wherever it stands."""
    assert sink(write, f"{key}=b\nname=a\n").name == "b"


def test_another_profile_has_no_effect(write: Write) -> None:
    """A key of another profile is named in a note."""
    settings = sink(write, "name=a\n%dev.name=b\n")
    assert settings.name == "a"
    assert any("%dev.name" in note for note in settings.notes)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${PREFIX}", "x_"),
        ("a${PREFIX}b", "ax_b"),
        ("${PREFIX:other_}", "x_"),
        ("${NONE:other_}", "other_"),
        ("${NONE:a:b}", "a:b"),
        ("${NONE:${PREFIX:y}}b", "x_b"),
        ("${NONE:${ALSO_NONE:${PREFIX}z}}b", "x_zb"),
        ("${PREFIX:${NONE:y}}b", "x_b"),
        ("${PREFIX:${NONE}}}", "x_}"),
        ("${NONE:{y}}", "{y}"),
        ("${LIKE_ONE:y}", "${PREFIX}"),
    ],
)
def test_expressions_of_debezium_server_are_variables(write: Write, text: str, value: str) -> None:
    """${NAME} is the environment's variable as in Quarkus; ${NAME:default} has a default, which may hold others."""
    environ = {"PREFIX": "x_", "LIKE_ONE": "${PREFIX}"}
    assert sink(write, f"debezium.sink.iceberg.jdbc.user={text}\n", **environ).catalog.properties["jdbc.user"] == value


def test_what_a_variable_holds_is_not_shown(write: Write) -> None:
    """A value that was looked up by its bare name may be a secret."""
    (fault,) = faults(write, "debezium.sink.iceberg.upsert=${SECRET}\n", SECRET="hunter2")
    assert "hunter2" not in fault
