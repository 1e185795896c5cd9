"""paths and files that a command cannot use -> one line that says so, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from connector.cli.main import main

SINK = "bootstrap.servers=h:1\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\n"
SOURCE = "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"
COMMANDS = [
    *(("validate",), ("connect-config",), ("run",), ("serve",), ("status",), ("doctor",), ("maintain",), ("repair",)),
    *(("reindex",), ("offsets", "show"), ("offsets", "reset"), ("dlq", "list"), ("dlq", "replay")),
]


def _call(*words: str) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path, command: tuple[str, ...]) -> None:
    """No file, a folder in its place, bytes that are no text: exit code 3 from every command."""
    (tmp_path / "bytes").write_bytes(bytes(range(256)) * 4)
    for name, says in (("none", "No such file or directory"), ("", "Is a directory"), ("bytes", "is not UTF-8")):
        result = _call(*command, str(tmp_path / name))
        assert result.exit_code == 3
        assert says in result.output
        assert result.output.count("\n") == 1


def test_serve_says_that_a_file_is_a_source_s(tmp_path: Path) -> None:
    """It does not speak of options that nobody gave."""
    file = tmp_path / "source.properties"
    file.write_text(SOURCE, "utf-8")
    result = _call("serve", str(file))
    assert (result.exit_code, "topics" in result.output) == (3, False)
    assert "this is the configuration of a source" in result.output


def test_repaired_letters_are_in_a_folder_that_is_there(tmp_path: Path) -> None:
    """A slip in its name would replay the letters as they were."""
    file = tmp_path / "sink.properties"
    file.write_text(SINK, "utf-8")
    result = _call("dlq", "replay", str(file), "--from", str(tmp_path / "repared"))
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file where a folder is to be, and a folder that is none."""
    file = tmp_path / "file"
    file.write_text("", "utf-8")
    assert _call("jars", "--to", str(file)).exit_code == 2
    result = _call("package", "--to", str(file / "packed.tar.gz"))
    assert result.exit_code == 1
    assert "cannot be written" in result.output


def test_a_component_that_there_is_not_is_a_value_that_cannot_be_used() -> None:
    """As any other: one line with those that there are, and exit code 3."""
    result = _call("jars", "s4")
    assert result.exit_code == 3
    assert "no component s4 in jars.lock; it has adls" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("text", ["key", "=value", " =value"])
def test_an_option_without_key_or_value_is_told_how_to_write_it(tmp_path: Path, text: str) -> None:
    """It is no key that nobody knows."""
    file = tmp_path / "sink.properties"
    file.write_text(SINK, "utf-8")
    result = _call("validate", str(file), "-X", text)
    assert (result.exit_code, "is not KEY=VALUE" in result.output) == (3, True)
    assert "value" not in result.output.replace("write -X key=value", "")
