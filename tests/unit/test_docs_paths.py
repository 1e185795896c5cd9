"""README.md, CONTRIBUTING.md and docs/ name files, folders, modules and pages that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.markdown import iter_blocks, strip_blocks

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = ("connector", "serde", "tests", "benchmarks", "config", "docker", "docs")
MADE_BY_COMMANDS = {"benchmarks/results"}
NO_MODULES = {"connector.class", "connector.json"}


def _code(text: str) -> Iterator[str]:
    """Yield the words of inline code and of fenced blocks: whatever may be a path."""
    for _, block in iter_blocks(text):
        yield from re.split(r"[\s`|,;()]+", block)
    yield from re.findall(r"`([^`\n]+)`", strip_blocks(text))


def _missing_paths(text: str) -> list[str]:
    paths = {word for word in _code(text) if re.fullmatch(rf"(?:{'|'.join(PACKAGES)})/[\w./-]*", word)}
    return sorted(path for path in paths if not (ROOT / path).exists() and path not in MADE_BY_COMMANDS)


def _missing_modules(text: str) -> list[str]:
    """Return dotted names below `connector` or `serde` that are neither a module nor a name in one."""
    missing = []
    names = {word for word in _code(text) if re.fullmatch(r"(?:connector|serde)(?:\.\w+)+", word)}
    for name in names - NO_MODULES:
        path = ROOT / name.replace(".", "/")
        if path.is_dir() or path.with_suffix(".py").exists():
            continue
        module = path.parent.with_suffix(".py")
        if not module.exists() or not re.search(rf"\b{path.name}\b", module.read_text("utf-8")):
            missing.append(name)
    return sorted(missing)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """Each path or module in code marks is there, and each link leads to a file."""
    text = page.read_text("utf-8")
    assert _missing_paths(text) == []
    assert _missing_modules(text) == []
    links = {link for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in link}
    assert sorted(link for link in links if not (page.parent / link).exists()) == []
