"""docs/reference/documented-behaviour.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/documented-behaviour.md").read_text("utf-8")


def test_named_tests_exist() -> None:
    """Each file that the page names is there, and each test is in one of the test files."""
    files = set(re.findall(r"`((?:unit|kafka|laws|spark)/test_\w+\.py)`", PAGE))
    assert len(files) > 10
    assert [name for name in sorted(files) if not (ROOT / "tests" / name).exists()] == []
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    known = {found for text in texts for found in re.findall(r"^def (test_\w+)", text, re.M)}
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named - known == set()
