"""Findings of the doctor: what a broken check is, what is printed, and which rights are missing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Column
from rich.table import Table as Grid

from connector.cli.arguments import load_settings
from connector.cli.console import open_console
from connector.cli.doctor import report as doctor
from connector.cli.doctor.findings import Finding
from connector.cli.main import main
from connector.errors import FatalError, RetriableError
from connector.kafka.admin import missing_rights


def closed_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A source whose broker and registry are away."""
    path, port = tmp_path / "s.properties", closed_port()
    path.write_text(
        f"connector.class=IcebergSource\nname=sick\nbootstrap.servers=127.0.0.1:{port}\ntopic.prefix=p\n"
        "iceberg.catalog.warehouse=/w\nvalue.converter=io.confluent.connect.avro.AvroConverter\n"
        f"value.converter.schema.registry.url=http://user:secret@127.0.0.1:{port}\n"
    )
    return path


def fail_jars() -> Iterator[Finding]:
    """No jars."""
    raise FatalError("Maven Central is out of reach")


def test_everything_is_tried_and_what_fails_says_what_to_do(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker and registry that are away, and missing jars, are one finding each; the exit code is 1."""
    monkeypatch.setattr(doctor, "check_jars", lambda _: fail_jars())
    monkeypatch.setattr("connector.cli.doctor.checks._TIMEOUT_S", 0.5)
    run = CliRunner().invoke(main, ["doctor", "--output", "json", str(file)])
    assert run.exit_code == 1
    document = json.loads(run.stdout)
    states = {check["subject"]: check["state"] for check in document["checks"]}
    assert not document["ok"]
    assert (states["configuration"], states["python"]) == ("ok", "ok")
    assert [states[one] for one in ("jars", "broker", "registry", "catalog")] == ["failed"] * 3 + ["skipped"]
    assert all(check["todo"] for check in document["checks"] if check["state"] == "failed")
    (broker,) = (check["text"] for check in document["checks"] if check["subject"] == "broker")
    assert broker.startswith("no bootstrap server answers: 127.0.0.1:") and broker.endswith(": Connection refused")
    assert "secret" not in run.stdout


def test_servers_are_asked_side_by_side(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that keeps its answer holds up nobody; what is told stays in order."""
    registry_asked = threading.Event()

    def await_registry(_: object) -> Iterator[Finding]:
        yield Finding("broker", "ok" if registry_asked.wait(20) else "failed", "it answers after the registry")

    def ask_registry(_: object) -> Iterator[Finding]:
        registry_asked.set()
        yield Finding("registry", "ok", "it answers")

    monkeypatch.setattr(doctor, "check_jars", lambda _: fail_jars())
    monkeypatch.setattr(doctor, "check_broker", await_registry)
    monkeypatch.setattr(doctor, "check_registries", ask_registry)
    run = CliRunner().invoke(main, ["doctor", "--output", "json", str(file)])
    told = [(check["subject"], check["state"]) for check in json.loads(run.stdout)["checks"]]
    assert told[-4:] == [("jars", "failed"), ("broker", "ok"), ("registry", "ok"), ("catalog", "skipped")]


def test_an_unforeseen_error_of_a_check_is_a_finding() -> None:
    """A check that breaks tells its class and no value, and the next one is made."""

    def broken() -> Iterator[Finding]:
        yield Finding("jars", "ok", "first")
        raise ValueError("a secret value")

    found = list(doctor.guard("jars", broken))
    assert [one.state for one in found] == ["ok", "failed"]
    assert "secret" not in found[1].text
    assert found[1].todo
    (away,) = doctor.guard("broker", lambda: (_ for _ in ()).throw(RetriableError("away")))
    assert away.text == "away"


def test_a_jvm_that_nobody_waits_for_is_ended(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends the command while servers are asked has started Spark's JVM already."""
    begun, ended = threading.Event(), threading.Event()

    class Starting:
        def __init__(self, _: object) -> None:
            begun.set()

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            ended.set()

    def interrupt() -> list[Finding]:
        begun.wait(60)
        raise KeyboardInterrupt

    for name in ("check_java", "check_jars"):
        monkeypatch.setattr(doctor, name, lambda *_: [])
    monkeypatch.setattr(doctor, "_far_checks", lambda _: [])
    monkeypatch.setattr(doctor, "start_session", Starting)
    monkeypatch.setattr(doctor, "check_python", interrupt)
    with pytest.raises(KeyboardInterrupt):
        doctor.examine(load_settings((file,), ()), output="text")
    assert ended.is_set()


def test_a_configuration_that_cannot_be_used_is_told_as_by_validate(tmp_path: Path) -> None:
    """The doctor ends with code 3 and the faults; nothing else can be tried."""
    path = tmp_path / "s.properties"
    path.write_text("connector.class=IcebergSource\n")
    assert CliRunner().invoke(main, ["doctor", str(path)]).exit_code == 3


def test_missing_rights_are_named_by_topic() -> None:
    """Only operations that a broker says it does not allow are missing; one that tells none allows all."""
    rights = {"a": frozenset({"READ", "DESCRIBE"}), "b": frozenset({"DESCRIBE"}), "c": frozenset[str]()}
    needs = dict.fromkeys(("a", "b", "c", "d"), ("READ", "DESCRIBE"))
    assert missing_rights(rights, needs) == {"b": ("READ",)}


def test_completion_is_offered_for_each_shell() -> None:
    """The command has click's completion."""
    for shell in ("bash", "zsh", "fish"):
        run = CliRunner().invoke(main, [], env={"_ICEBRIDGE_COMPLETE": f"{shell}_source"}, prog_name="icebridge")
        assert "icebridge" in run.output


@pytest.mark.parametrize(("columns", "is_whole"), [(None, True), ("30", False)], ids=["a pipe", "bounded"])
def test_tables_in_a_pipe_are_as_wide_as_they_are(
    columns: str | None, is_whole: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody's window breaks the ids and names that scripts and logs read."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    grid = Grid(Column("table", overflow="fold"), Column("snapshot", overflow="fold"))
    name = "default." + "x" * 90
    grid.add_row(name, "2460945305190135060")
    open_console().print(grid)
    told = capsys.readouterr().out
    assert (name in told) == is_whole
    assert max(map(len, told.splitlines())) < 140
