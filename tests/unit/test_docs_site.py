"""docs/ -> a site, strictly: every link and anchor between pages leads somewhere."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

TOP = Path(__file__).parents[2]


def test_the_site_is_built_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each page is there, and no link or anchor between them is broken."""
    with caplog.at_level(logging.WARNING):
        build(load_config(str(TOP / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    assert [record.getMessage() for record in caplog.records if record.name.startswith("mkdocs")] == []
    assert (tmp_path / "how-to" / "offsets" / "index.html").is_file()
