"""Which index a topic's documents, or those of events that name it, go to: never one that others share unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.errors import FatalError
from connector.opensearch.indexes.index_admin import IndexInfo
from connector.settings import load
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.destinations.table_schema import choose_key
from connector.sink.model.plan import SchemaChange

pytestmark = pytest.mark.unit
BASE = "bootstrap.servers=h:1\ndebezium.sink.iceberg.warehouse=/w\ndebezium.sink.type=opensearch\nconnection.url=http://h:1\n"


def _file(tmp_path: Path, extra: str) -> Path:
    file = tmp_path / "s.properties"
    file.write_text(BASE + extra)
    return file


def _indices(tmp_path: Path, extra: str) -> OpenSearchIndexes:
    settings = load([_file(tmp_path, extra)], environ={})
    assert isinstance(settings.destination, OpenSearchSettings)
    return OpenSearchIndexes(settings, settings.destination)


def test_topics_that_come_to_one_index_are_refused(tmp_path: Path) -> None:
    """Two topics that differ by capitals, or by what no index may be called: both are named."""
    for one, other in (("Shop.T", "shop.t"), ("a-b c", "a-b_c"), ("-x", "x")):
        found = _indices(tmp_path, "topics=t\n")
        found.name(one)
        assert found.name(one)
        with pytest.raises(FatalError, match=rf"topics {one} and {other} both come to index .*existing\.resource"):
            found.name(other)


@pytest.mark.parametrize(
    "extra",
    [
        "topic.to.existing.resource.mapping=shop.t:all,Shop.T:all\n",
        "topic.to.existing.resource.mapping=Shop.T:shop.t\n",
        "debezium.sink.iceberg.destination-regexp=[Ss]hop\\\\.[Tt]\ndebezium.sink.iceberg.destination-regexp-replace=all\n",
    ],
)
def test_topics_share_an_index_on_purpose(tmp_path: Path, extra: str) -> None:
    """What a setting sends to one index may share it."""
    found = _indices(tmp_path, "topics=t\n" + extra)
    assert len({found.name("Shop.T"), found.name("shop.t")}) == 1


def test_names_of_events_that_come_to_one_index_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first name has the index, whether this process met it or its note tells; the other's events are refused."""
    there: dict[str, IndexInfo] = {}

    def create(_: Any, name: str, properties: Any, noted: Any) -> IndexInfo:
        there[name] = IndexInfo(name, properties, noted)
        return there[name]

    monkeypatch.setattr("connector.opensearch.indexes.index_admin.IndexAdmin.find", lambda _, name: there.get(name))
    monkeypatch.setattr("connector.opensearch.indexes.index_admin.IndexAdmin.create", create)
    rule = "topics=t\niceberg.tables.dynamic-enabled=true\niceberg.tables.route-field=x\n"

    def need(name: str) -> SchemaChange:
        return SchemaChange("t", pa.struct([("id", pa.int64())]), None, {}, table=name)

    first = _indices(tmp_path, rule)
    first.apply_schema_changes([need("a.T")])
    first.apply_schema_changes([need("a.t"), need("a.u")])
    assert set(first) == {"a.T", "a.u"}
    assert "a.T" in first.refused_tables["a.t"]
    later = _indices(tmp_path, rule)
    later.apply_schema_changes([need("a.t")])
    assert "index a.t has the documents of a.T" in later.refused_tables["a.t"]


@pytest.mark.parametrize("extra", ["", "primary.key.mode=record_value\n"])
def test_a_configured_key_that_no_event_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """Its topic is refused, as one that goes to a table is; documents under another key would not be replaced."""
    monkeypatch.setattr("connector.opensearch.indexes.index_admin.IndexAdmin.find", lambda *_: None)
    found = _indices(tmp_path, f"topics=t\nprimary.key.fields=id,no\n{extra}")
    row, key = pa.struct([("id", pa.int64())]), pa.struct([("id", pa.int64())])
    found.apply_schema_changes([SchemaChange("t", row, key, {})])
    assert not set(found)
    assert found.refused == {"t": "its events have no field no, which is configured as its key"}


def test_no_key(tmp_path: Path) -> None:
    """With primary.key.mode=none documents have none, whatever the records have."""
    needs = [SchemaChange("t", pa.struct([("id", pa.int64())]), pa.struct([("id", pa.int64())]), {})]
    for mode, keys in (("none", ()), ("record_key", ("id",))):
        settings = load([_file(tmp_path, f"topics=t\nprimary.key.mode={mode}\n")], environ={})
        assert choose_key(needs, pa.schema([("id", pa.int64())]), settings.table, ("t",)) == keys
