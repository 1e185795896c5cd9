"""Which index a topic's documents, or those of events that name it, go to: never one that others share unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.errors import FatalError
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.opensearch.indexes.index_admin import IndexInfo
from connector.opensearch.indexes.mapping import missing_properties
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
        with pytest.raises(FatalError, match=rf"topics {one} and {other} both map to index .*existing\.resource"):
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


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, IndexInfo]:
    """Indexes by name, of a cluster that takes every mapping."""
    there: dict[str, IndexInfo] = {}

    def put(_: Any, name: str, properties: Any, noted: Any) -> IndexInfo:
        known = there[name].properties if name in there else {}
        there[name] = IndexInfo(name, {**known, **properties}, orjson.loads(orjson.dumps(noted)))
        return there[name]

    admin = "connector.opensearch.indexes.index_admin.IndexAdmin"
    monkeypatch.setattr(f"{admin}.find", lambda _, name: there.get(name))
    monkeypatch.setattr(f"{admin}.current", lambda _, index: there[index.name])
    monkeypatch.setattr(f"{admin}.create", put)
    monkeypatch.setattr(f"{admin}.grow", lambda _, index, properties, noted: put(_, index.name, properties, noted))
    return there


def _need(*names: str) -> SchemaChange:
    return SchemaChange("t", pa.struct([(name, pa.int64()) for name in names]), pa.struct([("_id", pa.int64())]), {})


def test_columns_whose_names_no_field_may_have(tmp_path: Path, cluster: dict[str, IndexInfo]) -> None:
    """Such a column, MongoDB's key among them, has a field of another name, the same after a restart and with more
    columns; all before the index knows it by the name that events give it."""
    first = _indices(tmp_path, "topics=t\n")
    first.apply_schema_changes([_need("_id", "a", "v")])
    first.apply_schema_changes([_need("_id", "a.b", "")])
    later = _indices(tmp_path, "topics=t\n")
    later.find(["t"])
    later.apply_schema_changes([_need("_source", "v.w")])
    fields = {"_id": "_id_1", "a.b": "a_b", "": "_", "_source": "_source_6", "v.w": "v_w"}
    assert set(cluster["t"].properties) == {*fields.values(), "a", "v"}
    for found in (later, _indices(tmp_path, "topics=t\n")):
        found.find(["t"])
        assert found.target("t").style.fields == fields
        layout = found.plan("t", 0, {}).layout
        assert (layout.keys, layout.columns.names) == (("_id",), ["_id", "a", "v", "a.b", "", "_source", "v.w"])


def test_columns_with_the_names_of_a_users_aliases(tmp_path: Path, cluster: dict[str, IndexInfo]) -> None:
    """Nothing can be written to an alias: the column of its name has a field of its own."""
    cluster["t"] = IndexInfo("t", {"v": {"type": "alias", "path": "_id_1"}}, {})
    found = _indices(tmp_path, "topics=t\n")
    found.apply_schema_changes([_need("_id", "v")])
    assert found.target("t").style.fields == {"_id": "_id_1", "v": "v_2"}


def test_fields_that_others_add_to_an_index_keep_their_types(
    tmp_path: Path, cluster: dict[str, IndexInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new column whose field somebody added while the sink ran is written to it, and its mapping is not asked for."""
    admin, asked = "connector.opensearch.indexes.index_admin.IndexAdmin", dict[str, Any]()
    monkeypatch.setattr(f"{admin}.current", lambda _, index: index)
    monkeypatch.setattr(
        f"{admin}.grow", lambda _, index, wanted, __: asked.update(missing_properties(index.properties, wanted))
    )
    found = _indices(tmp_path, "topics=t\n")
    found.apply_schema_changes([_need("_id", "a")])
    cluster["t"] = attrs.evolve(cluster["t"], properties={**cluster["t"].properties, "rating": {"type": "float"}})
    found.apply_schema_changes([_need("_id", "rating", "b")])
    assert asked == {"b": {"type": "long"}}


def test_the_time_of_a_data_stream_is_no_columns(tmp_path: Path) -> None:
    """A column of its name is it; one below it has a field beside."""
    extra = "topics=t\nkey.ignore=true\ndata.stream.enabled=true\n"
    layout = RowLayout(
        "t",
        build_table_schema(
            pa.schema(_need("@timestamp.x", "@timestamp").row), (), frozenset(), nanoseconds=True
        ).model_dump_json(),
    )
    made = _indices(tmp_path, extra)._assign_fields(layout, IndexInfo("t", {}, {}), {})
    assert made == {"@timestamp.x": "@timestamp_x", "@timestamp": "@timestamp"}


@pytest.mark.parametrize("extra", ["", "primary.key.mode=record_value\n"])
def test_a_configured_key_that_no_event_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """Its topic is refused, as one that goes to a table is; documents under another key would not be replaced."""
    monkeypatch.setattr("connector.opensearch.indexes.index_admin.IndexAdmin.find", lambda *_: None)
    found = _indices(tmp_path, f"topics=t\nprimary.key.fields=id,no\n{extra}")
    row, key = pa.struct([("id", pa.int64())]), pa.struct([("id", pa.int64())])
    found.apply_schema_changes([SchemaChange("t", row, key, {})])
    assert not set(found)
    assert found.refused.keys() == {"t"}
    assert found.refused["t"].startswith("its events have no field no, which is configured as its key; ")


def test_no_key(tmp_path: Path) -> None:
    """With primary.key.mode=none documents have none, whatever the records have."""
    needs = [SchemaChange("t", pa.struct([("id", pa.int64())]), pa.struct([("id", pa.int64())]), {})]
    for mode, keys in (("none", ()), ("record_key", ("id",))):
        settings = load([_file(tmp_path, f"topics=t\nprimary.key.mode={mode}\n")], environ={})
        assert choose_key(needs, pa.schema([("id", pa.int64())]), settings.table, ("t",)) == keys
