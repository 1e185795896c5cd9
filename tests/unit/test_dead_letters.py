"""Records of a dead letter topic -> letters: which of them were put through, and what a command prints of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from connector.cli import dlq
from connector.cli.main import main
from connector.kafka.admin import TopicInfo
from connector.kafka.dlq import reader
from connector.kafka.dlq.reader import REPLAYED_HEADER, DeadLetterRecord, read_dead_letters
from tests.unit.test_cli_paths import SINK

_AT = ("dead", 0)


@attrs.frozen
class _Message:
    """A record of the dead letter topic."""

    place: int
    told: Mapping[str, bytes]

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v%d" % self.place

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self.told.items())


def _dead(offset: int) -> dict[str, bytes]:
    return {f"__connect.errors.{name}": text for name, text in (("topic", b"t"), ("partition", b"0"))} | {
        "__connect.errors.offset": b"%d" % offset
    }


def _mark(letter: str) -> dict[str, bytes]:
    return {REPLAYED_HEADER: letter.encode()}


def _read(monkeypatch: pytest.MonkeyPatch, records: Sequence[Mapping[str, bytes]]) -> list[DeadLetterRecord]:
    messages = [_Message(place, told) for place, told in enumerate(records)]

    class Reader:
        def __init__(self, _: Any) -> None: ...
        def __enter__(self) -> Reader:
            return self

        def __exit__(self, *_: object) -> None: ...
        def read_from(self, starts: Mapping[tuple[str, int], int], count: int) -> dict[tuple[str, int], Any]:
            return {at: messages[start : start + count] for at, start in starts.items()}

    monkeypatch.setattr(reader, "RecordReader", Reader)
    cluster: Any = SimpleNamespace(
        names=lambda: {"dead"},
        topics=lambda _: {"dead": TopicInfo("dead", "log-of-letters", 1)},
        fetch_end_offsets=lambda at: {one: len(messages) for one in at},
        fetch_beginning_offsets=lambda at: dict.fromkeys(at, 0),
    )
    settings: Any = None
    return read_dead_letters(cluster, settings, "dead", "sink")


def test_a_letter_that_was_put_through_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the value that was put through; one that a crash wrote twice is one letter, the last of both."""
    first, second = _read(monkeypatch, [_dead(4), _dead(7), _dead(7), _mark("0-0"), _mark("0-2")])
    assert (first.id, first.replayed, first.value) == ("0-0", True, b"v3")
    assert (second.id, second.replayed, second.value) == ("0-2", True, b"v4")


def test_a_record_that_is_dead_once_more_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `offsets reset`, of a table that was dropped for one, the record is read and dead again: what had been put
    through before is not in the table, and was told to be.
    """
    (letter,) = _read(monkeypatch, [_dead(4), _mark("0-0"), _dead(4)])
    assert (letter.id, letter.replayed, letter.value) == ("0-2", False, b"v2")
    # A table that still has it names the letter of before.
    assert letter.names == {"0-2", "0-2@log-of-l", "0-0", "0-0@log-of-l"}
    (again,) = _read(monkeypatch, [_dead(4), _mark("0-0"), _dead(4), _mark("0-2")])
    assert (again.replayed, again.value) == (True, b"v3")


def test_letters_of_a_record_with_and_without_its_topics_id_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version wrote none, and the record was read and dead again: one row is to be replayed, not two."""
    named = {**_dead(4), "__connect.errors.topic.id": b"one"}
    for records in ([_dead(4), named], [named, _dead(4)]):
        (letter,) = _read(monkeypatch, records)
        assert (letter.id, letter.topic_id, letter.earlier) == ("0-1", "one", {"0-0"})
    (letter,) = _read(monkeypatch, [_dead(4), named, _mark("0-1")])
    assert letter.replayed
    # Of which of two topics it is, nobody knows.
    other = {**named, "__connect.errors.topic.id": b"another"}
    assert len(_read(monkeypatch, [_dead(4), named, other])) == 3


def _call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, *words: str) -> Result:
    """Run `icebridge dlq` over one letter; whatever comes of it is told in a line."""
    letter = DeadLetterRecord("0-5", "t", 0, 100, "CONVERT", reason, b"7", b"{}")
    monkeypatch.setattr(dlq, "_read_dead_letters", lambda _: [letter])
    file = tmp_path / "sink.properties"
    file.write_text(SINK, "utf-8")
    result = CliRunner().invoke(main, ["dlq", words[0], str(file), *words[1:]])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.mark.parametrize("reason", ["no connection to [/10.0.0.1:9092]", "a[b] is no number", "[red]", ":smile:"])
def test_a_reason_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str) -> None:
    """It has names of the source's fields, or is another program's, and is no markup."""
    monkeypatch.setenv("COLUMNS", "200")
    assert reason in _call(monkeypatch, tmp_path, reason, "list").output


def test_a_letter_that_cannot_be_saved_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder is below a file, or cannot be written."""
    result = _call(
        monkeypatch, tmp_path, "", "show", "--letter", "0-5", "--save", str(tmp_path / "sink.properties" / "x")
    )
    assert (result.exit_code, "cannot be written (Not a directory)" in result.output) == (1, True)


def test_what_is_not_saved_of_a_letter_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A value that is null, or was left out, makes no file: a folder without one would look as if it were lost."""
    letters = [DeadLetterRecord("0-5", "t", 0, 100, "CONVERT", "", b"7", None)]
    for says in ("value: null", "value: left out, as it was too large"):
        monkeypatch.setattr(dlq, "_read_dead_letters", lambda _: letters)
        file = tmp_path / "sink.properties"
        file.write_text(SINK, "utf-8")
        shown = CliRunner().invoke(main, ["dlq", "show", str(file), "--letter", "0-5", "--save", str(tmp_path / "x")])
        assert (says in shown.output, [one.name for one in (tmp_path / "x").iterdir()]) == (True, ["0-5.key"])
        letters[0] = attrs.evolve(letters[0], omitted=True)


def test_a_repaired_letter_that_cannot_be_read_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is not replayed as it was."""
    (tmp_path / "0-5.value").mkdir()
    result = _call(monkeypatch, tmp_path, "", "replay", "--from", str(tmp_path))
    assert (result.exit_code, "0-5.value: cannot be read (Is a directory)" in result.output) == (1, True)
