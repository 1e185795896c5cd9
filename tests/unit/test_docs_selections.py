"""docs/: each pytest command that checks a claim selects tests."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"pytest (tests/[^`\n]*)")


def _list_tests(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the names by which `-k` knows each test of a file or folder: of folders, of the file, and its own."""
    for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
        folders = file.relative_to(ROOT).parts
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield (*folders, node.name)


def _count_selected(command: str) -> int:
    words = shlex.split(command)
    places = [ROOT / word for word in words if word.startswith("tests/")]
    tests = {names for place in places for names in _list_tests(place)}
    if "-k" not in words:
        return len(tests)
    chosen = Expression.compile(words[words.index("-k") + 1])
    return sum(chosen.evaluate(partial(_is_in, names)) for names in tests)


def _is_in(names: tuple[str, ...], text: str, **_: str | int | bool | None) -> bool:
    return any(text.lower() in one.lower() for one in names)


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(page, found.rstrip(".,"), id=f"{page.name}: {found}")
        for page in PAGES
        for found in sorted(set(COMMAND.findall(page.read_text("utf-8"))))
    ],
)
def test_a_named_selection_has_tests(page: Path, command: str) -> None:
    """What is said to check a claim is not an empty selection."""
    assert _count_selected(command) > 0, f"{page}: pytest {command}"
