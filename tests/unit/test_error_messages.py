"""docs/reference/errors.md: every message of the code is on it, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.settings.reference.error_messages import PAGE, WORDS_OF_OTHERS, Message, find_messages, render_page

ROOT = Path(__file__).parents[2]


def test_no_message_is_missing() -> None:
    """The page is as the code is; each call that makes an error has words that were read, or those of others."""
    messages, unread = find_messages()
    assert (ROOT / PAGE).read_text("utf-8") == render_page(messages), "make docs"
    assert set(unread) <= set(WORDS_OF_OTHERS)
    assert all(one.what and one.todo for one in messages)


@pytest.mark.parametrize(
    ("code", "found"),
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
    ],
    ids=["an f-string", "a fault's two parts", "another function's words", "a variable"],
)
def test_words_are_found(code: str, found: Message, tmp_path: Path) -> None:
    """A message's words are read wherever they stand; what is filled in is a placeholder."""
    (tmp_path / "connector").mkdir()
    (tmp_path / "serde").mkdir()
    (tmp_path / "connector" / "m.py").write_text(code)
    assert find_messages(tmp_path) == ([found], [])


def test_a_message_without_words_is_told(tmp_path: Path) -> None:
    """A call whose words cannot be read is reported with its module."""
    (tmp_path / "connector").mkdir()
    (tmp_path / "serde").mkdir()
    (tmp_path / "connector" / "m.py").write_text("def f(x, y):\n    raise FatalError(x + y)")
    assert find_messages(tmp_path) == ([], ["connector.m"])
