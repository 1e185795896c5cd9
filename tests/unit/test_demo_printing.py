"""What the demo prints fits a narrow terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from connector.demo.printing import make_grid, show_summary, size_mb


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fold(width: int) -> None:
    """No line is wider than the terminal, and nothing of a cell is lost."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    grid = make_grid("table", "offsets", title="commits")
    grid.add_row("demo.js_public_kinds", ", ".join(f"{number}: {number * 1000}" for number in range(20)))
    console.print(grid)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "19:" in text and "19000" in text.replace("\n", "")


def test_the_summary_says_what_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fits 80 columns, names commands and pages that exist, and says where everything is."""
    monkeypatch.chdir(Path(__file__).parents[2])
    out = io.StringIO()
    (tmp_path / "x").write_bytes(b"x" * 3_000_000)
    show_summary(Console(file=out, width=80), tmp_path)
    text = out.getvalue()
    assert all(len(line) <= 80 or str(tmp_path) in line for line in text.splitlines())
    assert "icebridge demo" in text and "3 MB" in text.replace("\n", " ")
    assert size_mb(tmp_path) == 3
    # Pages are named where they can be opened, which is not so of a wheel.
    assert "docs/tutorial.md" in text


def test_a_wheel_names_no_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a checkout no file of it is named."""
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    show_summary(Console(file=out, width=80), tmp_path)
    assert "docs/" not in out.getvalue() and "config/" not in out.getvalue()


@pytest.mark.parametrize("active", [True, False])
def test_commands_can_be_typed_as_they_are_told(active: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment of `make` is not active, a command is told with its path."""
    own = tmp_path / "env" / "bin"
    own.mkdir(parents=True)
    (own / "icebridge").touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(own if active else tmp_path))
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    show_summary(Console(file=out, width=80), tmp_path)
    assert ("  env/bin/icebridge validate sink.properties" in out.getvalue()) is not active
    assert ("  icebridge validate sink.properties" in out.getvalue()) is active
