"""The import graph of our packages -> no circle, none hidden; a public class's name means one class."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("connector", "serde")


def _modules() -> dict[str, Path]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


MODULES = _modules()


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Each module's code; read when it is asked for, and not by each process that only collects these tests."""
    return {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def _imported_modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in MODULES)
    elif node.module in MODULES:
        for alias in node.names:
            below = f"{node.module}.{alias.name}"
            yield below if below in MODULES else node.module


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    """What is imported when a module is: at its top, those for type checkers among them; not those within functions."""
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from _imported_modules(statement)
        elif isinstance(statement, ast.If):
            yield from _imports([*statement.body, *statement.orelse])


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_no_import_circle(trees: dict[str, ast.Module]) -> None:
    """No module needs itself by way of others, imports for type checkers counted."""
    graph = {name: set(_imports(tree.body)) - {name} for name, tree in trees.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"import circle: {' <- '.join(error.args[1])}") from None


def test_nothing_of_ours_is_imported_for_type_checkers_only(trees: dict[str, ast.Module]) -> None:
    """TYPE_CHECKING is for libraries that take long to import; between our own modules it would hide a circle."""
    hidden = [
        f"{name}: {module}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if _is_for_type_checkers(node)
        for module in _imports(node.body)  # type: ignore[attr-defined]
    ]
    assert hidden == []


def test_a_public_class_name_means_one_class(trees: dict[str, ast.Module]) -> None:
    """Two modules that define a class of one name make a reader guess which is meant."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


UNIMPORTED = {"pandas": "PySpark refuses mapInArrow without it"}
"""Packages that are declared and that no module of ours imports, each with its reason."""


def test_every_dependency_is_imported(trees: dict[str, ast.Module]) -> None:
    """A package that is declared and that nothing imports is dropped, or has its reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {re.split(r"[\[<>=!~; ]", one)[0].lower() for one in project["dependencies"]}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    packages = packages_distributions()
    found = {owner.lower().replace("_", "-") for name in imported for owner in packages.get(name.partition(".")[0], ())}
    assert declared - found == set(UNIMPORTED)
    assert (ROOT / "LICENSE").read_text("utf-8").lstrip().startswith("Apache License")
