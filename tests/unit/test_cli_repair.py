"""Which tables `icebridge repair` looks at."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.cli import repair
from connector.errors import ConfigError, FatalError, RetriableError
from connector.settings import load

GIVEN = {"topics": "t", "bootstrap.servers": "h:1", "name": "a_sink", "debezium.sink.iceberg.warehouse": "/w"}


@pytest.mark.parametrize("listed", [[], [(("default",), "here"), (("default",), "other")]])
def test_tables_of_other_namespaces_that_the_sink_wrote_are_looked_at(
    listed: list[tuple[tuple[str, ...], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside those of its own namespace, as events may name their tables; none twice, and never no table at all."""
    settings, written = load([], GIVEN, {}), {"other.deep.t": 1, "default.here": 2}
    asked = list[tuple[str, str]]()

    def offsets(_: Any, table: str, name: str) -> Any:
        asked.append((table, name))
        return SimpleNamespace(tables=written)

    monkeypatch.setattr(repair, "OffsetsTable", offsets)
    catalog = cast("Any", SimpleNamespace(list_tables=lambda namespace: list(listed) if namespace else None))
    found = repair._list_places(catalog, settings)
    assert found == [*listed, *sorted({(("other", "deep"), "t"), (("default",), "here")} - set(listed))]
    assert asked == [(settings.table.offsets_table, "a_sink")]
    written.clear()
    if not listed:
        with pytest.raises(ConfigError, match="has no tables"):
            repair._list_places(catalog, settings)


@pytest.mark.parametrize("stage", ["_inspect_table", "_mend_table"])
def test_a_table_that_fails_keeps_no_other_from_being_repaired(
    stage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that cannot be read, or that others change each time, is told at the end; the others are mended."""
    settings = load([], {**GIVEN, "errors.retry.timeout": "0"}, {})
    tables = {name: SimpleNamespace(name=f"default.{name}") for name in ("bad", "good")}
    findings = SimpleNamespace(repairable=True, branches=(), placed=SimpleNamespace(mixed=0))
    answers: dict[str, Any] = {"_inspect_table": findings, "_mend_table": 3}

    def answer(step: str, table: Any) -> Any:
        if step == stage and table is tables["bad"]:
            raise RetriableError("another writer committed first")
        return answers[step]

    for step in answers:
        monkeypatch.setattr(repair, step, partial(answer, step))
    monkeypatch.setattr(repair, "open_driver", lambda _: nullcontext())
    monkeypatch.setattr(repair, "Catalog", lambda *_: SimpleNamespace(find=lambda _, name: tables[name]))
    monkeypatch.setattr(repair, "_print_tables", lambda *_, **__: None)
    with pytest.raises(FatalError, match=r"1 tables could not be .*another writer"):
        repair.repair_tables(settings, tables=("bad", "good"), execute=True)
    assert "default.good: 3 files mended" in capsys.readouterr().out
