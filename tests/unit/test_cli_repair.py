"""Which tables `icebridge repair` looks at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.cli import repair
from connector.errors import ConfigError
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
