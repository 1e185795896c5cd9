"""An unpartitioned spec for tables that never had one: what is put back into the spec that they write by."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from connector.iceberg.catalog import catalog
from connector.iceberg.catalog.catalog import Catalog


def _table(columns: dict[int, str], *fields: tuple[str, int, str], done: list[Any]) -> Any:
    """A table without such a spec, of these columns by id, and of partition fields with name, source and transform."""
    parts = [
        SimpleNamespace(name=lambda f=f: f[0], sourceId=lambda f=f: f[1], transform=lambda f=f: f[2]) for f in fields
    ]

    def update() -> Any:
        own: list[Any] = []
        return SimpleNamespace(
            removeField=lambda name: own.append(("out", name)),
            addField=lambda name, term: own.append(("in", name, term)),
            commit=lambda: done.append(own),
        )

    java = SimpleNamespace(
        newTransaction=lambda: SimpleNamespace(updateSpec=update, commitTransaction=lambda: done.append("committed")),
        spec=lambda: SimpleNamespace(fields=lambda: parts),
        schema=lambda: SimpleNamespace(findColumnName=columns.get),
    )

    def settle(_: str, change: Callable[[], None]) -> None:
        change()

    return SimpleNamespace(name="d.t", java=java, unpartitioned_spec=lambda: None, settle=settle)


def test_a_field_whose_column_is_gone_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of format 1 that was upgraded keeps a void field of a dropped column: no other spec can have it."""
    expressions = SimpleNamespace(transform=lambda source, transform: f"{transform}({source})")
    iceberg = SimpleNamespace(expressions=SimpleNamespace(Expressions=expressions))
    java = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(iceberg=iceberg)))
    monkeypatch.setattr(catalog, "jvm", lambda _: java)
    monkeypatch.setattr(catalog, "iterate", iter)
    done: list[Any] = []
    made = Catalog.__new__(Catalog)
    made._driver = None  # type: ignore[assignment]
    made.ensure_delete_spec(_table({1: "id"}, ("s", 4, "void"), ("id_bucket", 1, "bucket[4]"), done=done))
    assert done == [[("out", "s"), ("out", "id_bucket")], [("in", "id_bucket", "bucket[4](id)")], "committed"]
