"""docs/architecture.md and pyproject.toml tell of the tree that is there: packages, the order of steps, paths."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]


def _layers(container: str) -> list[set[str]]:
    """Return the layers of a package by import-linter's contract, the highest first."""
    (layers,) = [one["layers"] for one in CONTRACTS if one.get("containers") == [container]]
    return [set(layer.split(" | ")) for layer in layers]


def _exists(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize(("package", "before"), [("sink", "Inside the sink"), ("source", "Inside the source")])
def test_the_steps_are_those_that_imports_keep_to(package: str, before: str) -> None:
    """The line of steps on the page is the order that import-linter checks, step by step."""
    line = re.search(r"```\n(.*?)\n```|`([^`]*->[^`]*)`", PAGE[PAGE.index(before) :], re.S)
    assert line is not None
    text = re.sub(r"\(.*?\)", "", line[1] or line[2])
    assert [set(re.findall(r"\w+", step)) for step in text.split("->")] == _layers(f"connector.{package}")


def test_the_picture_has_every_package() -> None:
    """Each package below `connector` stands in the picture of the house, and nothing else does."""
    picture = PAGE[PAGE.index("```") : PAGE.index("```", PAGE.index("```") + 3)]
    drawn = set(re.findall(r"connector/(\w+)", picture)) - {"errors"}
    assert drawn == {path.parent.name for path in (ROOT / "connector").glob("*/__init__.py")}


def test_the_page_names_every_package() -> None:
    """Each folder of modules stands somewhere on the page: by its path, or in the row of its package."""
    rows = {line.split("`")[1]: line for line in PAGE.splitlines() if re.match(r"\| `(connector|serde)/", line)}
    made = [path for package in ("connector", "serde") for path in (ROOT / package).rglob("__init__.py")]
    missing = []
    for folder in (f"{path.parent.relative_to(ROOT).as_posix()}/" for path in made):
        package = next((row for row in rows if folder.startswith(row)), "")
        inside = folder.removeprefix(package)
        if inside and folder not in PAGE and f"`{inside}`" not in rows.get(package, ""):
            missing.append(folder)
    assert sorted(missing) == []


def test_the_projects_file_names_what_is_there() -> None:
    """Each module of a contract, each file that faults are put into and each test that judges them exists."""
    modules = {
        f"{container}.{name}"
        for one in CONTRACTS
        for container in one.get("containers", [])
        for layer in one["layers"]
        for name in layer.split(" | ")
    }
    modules |= {name for one in CONTRACTS for name in [*one.get("modules", []), *one.get("source_modules", [])]}
    modules |= {name for one in CONTRACTS for name in one.get("forbidden_modules", []) if "." in name}
    assert sorted(name for name in modules if not _exists(name)) == []
    mutmut = PROJECT["tool"]["mutmut"]
    paths = [*mutmut["only_mutate"], *mutmut["also_copy"], *mutmut["pytest_add_cli_args_test_selection"]]
    assert [path for path in paths if not any(ROOT.glob(path))] == []
