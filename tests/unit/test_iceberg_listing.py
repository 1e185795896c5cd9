"""A catalog's namespaces and tables -> their names, without a JVM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field
from py4j.protocol import Py4JJavaError

from connector.errors import FatalError, RetriableError
from connector.iceberg.catalog import catalog as catalog_module
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.java import map_java_errors
from connector.settings import CatalogSettings
from connector.settings.kafka.error_handling import NO_RETRIES

Levels = tuple[str, ...]


def _some(values: list[Any]) -> Any:
    """A Java collection as Py4J shows it."""

    def iterator() -> Any:
        rest = list(values)
        return SimpleNamespace(hasNext=lambda: bool(rest), next=lambda: rest.pop(0))

    return SimpleNamespace(iterator=iterator)


def _java_error(name: str) -> Py4JJavaError:
    cause = SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: name),
        getMessage=lambda: "Namespace does not exist",
        getCause=lambda: None,
        _target_id="o1",
        _gateway_client=SimpleNamespace(send_command=lambda *_: "yssaid"),
    )
    return Py4JJavaError("listing", cause)


@define
class JavaCatalog:
    """Tables by namespace; `refuses` are namespaces that are listed, and whose own listing fails."""

    tables: dict[Levels, list[str]]
    refuses: dict[Levels, str] = field(factory=dict)

    def listNamespaces(self, levels: Levels) -> Any:  # noqa: N802 - Java's name
        below = [one for one in self.tables if one[:-1] == levels]
        return _some([SimpleNamespace(levels=lambda one=one: list(one)) for one in below])

    def listTables(self, levels: Levels) -> Any:  # noqa: N802 - Java's name
        if levels in self.refuses:
            raise _java_error(self.refuses[levels])
        return _some([SimpleNamespace(name=lambda name=name: name) for name in self.tables[levels]])


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog with a namespace in another one, and one that is dropped while all are listed."""
    made = Catalog.__new__(Catalog)
    tables = {("sales",): ["orders"], ("scratch",): ["old"], ("sales", "eu"): ["orders"]}
    made._java = JavaCatalog(tables, {("scratch",): "NoSuchNamespaceException"})
    made._settings = SimpleNamespace(name="lake")  # type: ignore[assignment]
    monkeypatch.setattr(Catalog, "_namespace", lambda _, levels: levels)
    return made


def test_a_namespace_that_is_dropped_while_all_are_listed_has_no_tables(catalog: Catalog) -> None:
    """Others drop namespaces when they like; what is in the rest of the catalog is found all the same."""
    assert catalog.list_tables() == [(("sales",), "orders"), (("sales", "eu"), "orders")]
    assert catalog.list_tables(("scratch",)) == []


def test_a_namespace_that_may_not_be_listed_is_an_error(catalog: Catalog) -> None:
    """Its tables may be meant: whoever looks has to know."""
    catalog._java.refuses[("scratch",)] = "ForbiddenException"
    with pytest.raises(FatalError, match="catalog lake"):
        catalog.list_tables()


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ("AlreadyExistsException", FatalError, "and it is no table that can be loaded; if it is a view"),
        ("ValidationException", FatalError, "; correct what names or describes new tables"),
        ("CommitFailedException", RetriableError, "CommitFailedException"),
        (None, RetriableError, "it does not exist afterwards"),
    ],
)
def test_a_table_that_cannot_be_made(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, answer: str | None, error: type[Exception], told: str
) -> None:
    """A name that a view has, and a partition spec that does not fit, are told at once: waiting does not help."""

    def make(*_: object) -> None:
        if answer is not None:
            with map_java_errors("creating table sales.orders"):
                raise _java_error(answer)

    monkeypatch.setattr(Catalog, "_create", make)
    monkeypatch.setattr(Catalog, "_ensure_namespace", lambda *_: None)
    monkeypatch.setattr(Catalog, "load", lambda *_: None)
    catalog._errors = NO_RETRIES
    with pytest.raises(error, match=told):
        catalog.create("sales.orders", None)  # type: ignore[arg-type]


def test_a_name_that_nothing_has_is_tried_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had it is gone by the next look, or another commit was in the way: the table is made."""
    answers = ["AlreadyExistsException", "AlreadyExistsException"]

    def make(*_: object) -> None:
        if answers:
            with map_java_errors("creating table sales.orders"):
                raise _java_error(answers.pop())
        made.append("orders")

    made: list[str] = []
    monkeypatch.setattr(Catalog, "_create", make)
    monkeypatch.setattr(Catalog, "_ensure_namespace", lambda *_: None)
    monkeypatch.setattr(Catalog, "load", lambda *_: made[0] if made else None)
    catalog._errors = NO_RETRIES
    assert catalog.create("sales.orders", None) == "orders"  # type: ignore[arg-type, comparison-overlap]
    assert made == ["orders"]


def test_a_warehouse_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where this user may not write, or a file is in the way; one whose warehouse is a name makes no folder."""
    monkeypatch.setattr(catalog_module, "iceberg_catalog", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", "utf-8")

    def opened(kind: str, warehouse: str) -> None:
        Catalog(cast("Any", None), CatalogSettings("c", {"type": kind, "warehouse": warehouse}, (), {}))

    with pytest.raises(
        FatalError, match=r"the folder of the warehouse, .*/file/lake, cannot be made \(Not a directory"
    ):
        opened("jdbc", str(tmp_path / "file" / "lake"))
    opened("rest", "lake")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    opened("jdbc", f"file:{tmp_path}/lake/below")
    assert (tmp_path / "lake" / "below").is_dir()


def test_a_jdbc_catalog_by_its_class_has_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one by its type; a name of a class's warehouse makes no folder."""
    monkeypatch.setattr(catalog_module, "iceberg_catalog", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    for warehouse in (str(tmp_path / "a"), f"file:{tmp_path}/b", "lake", "s3://bucket/lake"):
        properties = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "warehouse": warehouse}
        Catalog(cast("Any", None), CatalogSettings("c", properties, (), {}))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]
