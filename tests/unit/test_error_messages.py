"""docs/reference/errors.md: every message of the code is on it, with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connector.settings.reference.error_messages import PAGE, WORDS_OF_OTHERS, Message, find_messages, render_page

ROOT = Path(__file__).parents[2]
Found = tuple[list[Message], list[str]]


@pytest.fixture(scope="module")
def found() -> Found:
    """What the code says; it is all read, which takes seconds."""
    return find_messages()


def test_no_message_is_missing(found: Found) -> None:
    """The page is as the code is; each call that makes an error has words that were read, or those of others."""
    messages, unread = found
    assert (ROOT / PAGE).read_text("utf-8") == render_page(messages), "make docs"
    assert set(unread) <= set(WORDS_OF_OTHERS)
    assert all(one.what and one.todo for one in messages)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            'def f(table):\n    raise FatalError(f"table {table.name} is gone; restore it")',
            Message("stop", "table <name> is gone", "restore it", "connector.m"),
        ),
        (
            'LIMIT = "not more"\ndef f(reader, entry):\n    reader.add_fault(entry, "is too much", LIMIT)',
            Message("config", "is too much", "not more", "connector.m"),
        ),
        (
            'def _why(x):\n    return f"no {x} is there; look"\ndef f(x):\n    raise GapError(_why(x))',
            Message("stop", "no <x> is there", "look", "connector.m"),
        ),
        (
            'def f(x):\n    text = "a value of no kind"\n    raise DataFault(text)',
            Message(
                "letter",
                "a value of no kind",
                "`icebridge dlq show` prints the record; repair and replay it",
                "connector.m",
            ),
        ),
        (
            'def f(at, ends):\n    raise GapError(f"{at[0]}-{at[1]} ends at {ends[at]}; look")',
            Message("stop", "<topic>-<partition> ends at <ends>", "look", "connector.m"),
        ),
    ],
    ids=["an f-string", "a fault's two parts", "another function's words", "a variable", "a topic-partition"],
)
def test_words_are_found(code: str, message: Message, tmp_path: Path) -> None:
    """A message's words are read wherever they stand; what is filled in is a placeholder."""
    (tmp_path / "connector").mkdir()
    (tmp_path / "serde").mkdir()
    (tmp_path / "connector" / "m.py").write_text(code)
    assert find_messages(tmp_path) == ([message], [])


def test_words_of_another_module_are_found(tmp_path: Path) -> None:
    """What to do is read where it is declared, if several modules say it."""
    (tmp_path / "connector").mkdir()
    (tmp_path / "serde").mkdir()
    (tmp_path / "connector" / "a.py").write_text('REMEDY = "restore it"')
    code = 'from connector.a import REMEDY\ndef f(x):\n    raise FatalError(f"table {x} is gone; {REMEDY}")'
    (tmp_path / "connector" / "m.py").write_text(code)
    assert find_messages(tmp_path) == ([Message("stop", "table <x> is gone", "restore it", "connector.m")], [])


WITHOUT_OWN_ADVICE = {
    "connector.runtime.jvm.lock": "developers alone see it",
    "connector.runtime.jvm.archives": "the same",
    "connector.demo.servers.server": "the same",
    "connector.cli.doctor.report": "the table of checks has the advice",
    "connector.kafka.registry.apicurio": "by the status",
    "connector.kafka.registry.confluent": "by the status",
}
"""Module -> why its messages do not end with what to do."""
OF_OTHERS = re.compile(
    r"<(?:fault|reason|error|message|failed|reasons|unread|hint|unfit|refused|text|missing row id)[^>]*>"
)
"""Placeholders that hold the words of another error, with what to do."""


def test_an_operator_is_told_what_to_do(found: Found) -> None:
    """An error that ends the run has advice of its own, unless it hands on another one's."""
    messages, _ = found
    assert [one for one in messages if re.fullmatch(r"<[^>]*>", one.todo) and one.todo not in {"<todo>", "<why>"}] == []
    bare = [one for one in messages if one.chapter == "stop" and one.todo.startswith("follow the message")]
    assert [one for one in bare if one.module not in WITHOUT_OWN_ADVICE and not OF_OTHERS.search(one.what)] == []


def test_a_message_without_words_is_told(tmp_path: Path) -> None:
    """A call whose words cannot be read is reported with its module."""
    (tmp_path / "connector").mkdir()
    (tmp_path / "serde").mkdir()
    (tmp_path / "connector" / "m.py").write_text("def f(x, y):\n    raise FatalError(x + y)")
    assert find_messages(tmp_path) == ([], ["connector.m"])
