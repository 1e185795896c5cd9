"""Iceberg tables -> documents with no Kafka between: the documented topology and rules, on a real node.

ICEBRIDGE_HISTORIES (1), ICEBRIDGE_STEPS (4, in `make test` 2) and ICEBRIDGE_SEED (0) are those of the source's
histories.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.cli.reindex import reindex_tables
from connector.errors import ConfigError, FatalError, GapError
from connector.opensearch.indexes.index_admin import IndexAdmin, IndexInfo
from connector.runtime.stop_signals import leave_on_signals
from connector.settings.source.settings import load_source
from connector.source.destinations.opensearch import OpenSearchPublisher
from connector.source.factory import build_source
from tests.clients.search import Search
from tests.harness.rounds import THOROUGH, seeded
from tests.harness.tiers import tiered
from tests.histories.source_tables import CATALOG, Kind, Subject, use_catalog
from tests.histories.stories import FLAT, NESTED, Unique
from tests.runs.direct import Direct, index_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

HISTORIES = int(os.environ.get("ICEBRIDGE_HISTORIES", "1"))
SEED = seeded()
STEPS = int(os.environ.get("ICEBRIDGE_STEPS", "4" if THOROUGH else "2"))
KINDS = [
    Kind(2, "copy-on-write", partitioned=True, identifiers=True, nested=True),
    Kind(3, "merge-on-read", partitioned=False, identifiers=True),
]


@pytest.fixture(scope="module")
def direct(spark: SparkSession, search: Search, tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """A catalog for these tests."""
    home = tmp_path_factory.mktemp("direct")
    use_catalog(spark, home)
    return Direct(spark, home, search, CATALOG)


@pytest.mark.parametrize("kind", tiered(KINDS, [], str))
def test_any_history_ends_with_the_index_equal_to_the_table(direct: Direct, kind: Kind) -> None:
    """After any history (compaction, schema change, deletes, keys that change) the index is the table, and stays so
    when its snapshots come once more, in any order."""
    for number in range(HISTORIES):
        story = Unique(Subject(direct.spark, kind, NESTED if kind.nested else FLAT), SEED + number)
        story.settle = lambda story=story: direct.run(story.subject.short)
        story.begin()
        direct.run(story.subject.short)
        for _ in range(STEPS):
            story.step()
        direct.run(story.subject.short)
        assert direct.differences(story.subject) == [], story.told
        direct.again(story.subject, Random(SEED + number))
        assert direct.differences(story.subject) == [], f"after a replay: {story.told}"


def _table(direct: Direct, name: str, columns: str, *, keys: bool = True, version: int = 2) -> str:
    full = f"db.{name}"
    direct.spark.sql(
        f"CREATE TABLE {CATALOG}.{full} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='{version}')"
    )
    if keys:
        loader: Any = direct.spark._jvm.org.apache.iceberg.spark.Spark3Util
        java = loader.loadIcebergTable(direct.spark._jsparkSession, f"{CATALOG}.{full}")
        names = direct.spark.sparkContext._gateway.new_array(direct.spark._jvm.java.lang.String, 1)
        names[0] = "id"
        java.updateSchema().setIdentifierFields(names).commit()
    return full


@pytest.mark.thorough
def test_event_metadata_as_fields(direct: Direct) -> None:
    """Operation, table, snapshot id, document id and bulk action, where they are asked for."""
    table = _table(direct, "told", "id BIGINT NOT NULL, v STRING")
    wanted = "iceberg_operation,iceberg_table_name,iceberg_snapshot_id,document_id,bulk_action"
    extra = {"iceberg.metadata.fields": wanted}
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    direct.run(table, extra)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'z' WHERE id = 2")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 3")
    direct.run(table, extra)
    found = direct.search.documents(index_of(table))
    assert sorted(found) == ["1", "2"]
    told = {i: (d["iceberg_operation"], d["document_id"], d["bulk_action"]) for i, d in found.items()}
    assert told == {"1": ("INSERT", "1", "INDEX"), "2": ("UPDATE_AFTER", "2", "INDEX")}
    assert {d["iceberg_table_name"] for d in found.values()} == {table}
    snapshots = [row.snapshot_id for row in direct.spark.sql(f"SELECT * FROM {CATALOG}.{table}.snapshots").collect()]
    assert found["1"]["iceberg_snapshot_id"] in snapshots and found["2"]["iceberg_snapshot_id"] in snapshots


def test_compaction_sends_nothing_and_carried_over_rows_stay(direct: Direct) -> None:
    """Rows that a rewrite carries over keep their versions."""
    table = _table(direct, "carried", "id BIGINT NOT NULL, v STRING")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    direct.run(table)
    before = direct.search.versions(index_of(table))
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'B' WHERE id = 2")
    direct.spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all','true'))"
    )
    steps = direct.run(table)
    after = direct.search.versions(index_of(table))
    assert [step.kind for step in steps] == ["snapshot published", "snapshot skipped"]
    assert {i: after[i] > before[i] for i in after} == {"1": False, "2": True, "3": False}


def test_a_renamed_column_keeps_its_field_and_gets_an_alias(direct: Direct) -> None:
    """After a rename one field holds the column in old and new documents, under both names."""
    table = _table(direct, "renamed", "id BIGINT NOT NULL, a STRING")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'old')")
    direct.run(table)
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} RENAME COLUMN a TO b")
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} ADD COLUMN a INT")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (2, 'new', 7)")
    direct.run(table)
    index = index_of(table)
    assert direct.search.documents(index) == {"1": {"id": 1, "a": "old"}, "2": {"id": 2, "a": "new", "a_3": 7}}
    assert direct.search.mapping(index)["b"] == {"type": "alias", "path": "a"}
    hits = direct.search.ask("GET", f"{index}/_search?q=b:(old%20OR%20new)")["hits"]["hits"]
    assert sorted(hit["_id"] for hit in hits) == ["1", "2"]


@pytest.mark.thorough
def test_columns_whose_names_no_field_may_have(direct: Direct) -> None:
    """Columns with the names of OpenSearch's metadata, or that are paths through others, have fields of their own."""
    columns = "id BIGINT NOT NULL, _id STRING, a BIGINT, `a.b` BIGINT, `.c` BIGINT, `d.e` BIGINT"
    table = _table(direct, "refused_names", columns)
    for key in (1, 2):
        direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ({key}, 'x', 1, 2, 3, 4)")
        direct.run(table)
    document = {"_id_2": "x", "a": 1, "a_b": 2, "_c": 3, "d.e": 4}
    assert direct.search.documents(index_of(table)) == {str(key): {"id": key, **document} for key in (1, 2)}
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} RENAME COLUMN a TO _source")
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} ADD COLUMN `d` BIGINT")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'x', 1, 2, 3, 4, 5)")
    direct.run(table)
    assert direct.search.documents(index_of(table))["3"] == {"id": 3, **document, "d_7": 5}


def test_names_within_structs_that_no_field_may_have(direct: Direct) -> None:
    """Fields of structs, in lists too, with names that OpenSearch refuses have other names; below maps they stay."""
    inner = "a: BIGINT, `a.b`: BIGINT, `.x`: BIGINT, `y..z`: BIGINT, `p. .q`: BIGINT, _id: BIGINT"
    columns = f"id BIGINT NOT NULL, s STRUCT<{inner}>, l ARRAY<STRUCT<{inner}>>, m MAP<STRING, STRUCT<{inner}>>"
    table = _table(direct, "refused_inner_names", columns)
    row = "named_struct('a', 1, 'a.b', 2, '.x', 3, 'y..z', 4, 'p. .q', 5, '_id', 6)"
    for key in (1, 2):
        direct.spark.sql(
            f"INSERT INTO {CATALOG}.{table} VALUES ({key}, {row}, array({row}, {row}), map('.k', {row}, '', {row}))"
        )
        direct.run(table)
    struct = {"a": 1, "a_b": 2, "_x": 3, "y__z": 4, "p_ _q": 5, "_id": 6}
    below = {"a": 1, "a.b": 2, ".x": 3, "y..z": 4, "p. .q": 5, "_id": 6}
    document = {"s": struct, "l": [struct, struct], "m": {".k": below, "": below}}
    assert direct.search.documents(index_of(table)) == {str(key): {"id": key, **document} for key in (1, 2)}
    hits = direct.search.ask("GET", f"{index_of(table)}/_search?q=s.y__z:4")["hits"]["hits"]
    assert sorted(hit["_id"] for hit in hits) == ["1", "2"]


def test_rows_without_identifiers_are_named_by_their_row_id(direct: Direct) -> None:
    """A v3 table without identifier columns has `_row_id` for document id."""
    table = _table(direct, "lineage", "v STRING", keys=False, version=3)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('b')")
    direct.run(table)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'B' WHERE v = 'b'")
    direct.run(table)
    assert sorted(d["v"] for d in direct.search.documents(index_of(table)).values()) == ["B", "a"]


def test_an_append_only_table_without_key_gets_ids_from_opensearch(direct: Direct) -> None:
    """Without identifier columns (format v2) every row is a document whose id OpenSearch generates."""
    table = _table(direct, "log", "v STRING", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('a')")
    direct.run(table)
    assert [d["v"] for d in direct.search.documents(index_of(table)).values()] == ["a", "a"]


def test_nothing_moves_on_before_every_document_is_settled(direct: Direct) -> None:
    """An index that refuses documents stops the table at its snapshot; once it takes them the
    same changes come again, and the end is right."""
    table = _table(direct, "refused", "id BIGINT NOT NULL, v STRING")
    direct.search.ask("PUT", index_of(table), {"mappings": {"properties": {"v": {"type": "long"}}}})
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'no number'), (2, '3')")
    with pytest.raises(FatalError, match="refuses 1 documents"):
        direct.run(table)
    direct.search.ask("DELETE", index_of(table))
    direct.run(table)
    assert sorted(direct.search.documents(index_of(table))) == ["1", "2"]


def test_reindex_swaps_a_fresh_index_in_and_changes_follow(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    """`icebridge reindex` loads a fresh index, swaps it in in one step, and changes go on from its snapshot."""
    from connector.cli import reindex

    table = _table(direct, "rebuilt", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    direct.run(table)
    direct.search.ask("POST", f"{index}/_doc/stranger", {"v": "not of the table"})
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 1")
    monkeypatch.setattr(reindex, "open_session", lambda _: nullcontext(direct.spark))
    reindex_tables(direct.settings(table))
    assert sorted(direct.search.documents(index)) == ["2"]
    behind = list(direct.search.ask("GET", f"_alias/{index}"))
    assert len(behind) == 1 and behind[0].startswith(f"{index}-")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    assert [step.kind for step in direct.run(table)] == ["snapshot published"]
    assert sorted(direct.search.documents(index)) == ["2", "3"]


@pytest.mark.parametrize("moment", ["publish", "swap"])
def test_a_reindex_that_is_stopped_leaves_one_index(
    direct: Direct, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A signal ends the load, and what was loaded is deleted; one that comes with the swap lets it end, position and
    all."""
    from connector.cli import reindex

    table = _table(direct, f"stopped_{moment}", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    direct.run(table)
    direct.search.ask("POST", f"{index}/_doc/stranger", {"v": "not of the table"})
    monkeypatch.setattr(reindex, "open_session", lambda _: nullcontext(direct.spark))
    kind, name = {"publish": (OpenSearchPublisher, "publish"), "swap": (IndexAdmin, "swap_alias")}[moment]
    usual = getattr(kind, name)

    def stop(*arguments: Any) -> Any:
        done = usual(*arguments)
        signal.raise_signal(signal.SIGTERM)
        return done

    with monkeypatch.context() as stopping:
        stopping.setattr(kind, name, stop)
        with pytest.raises(SystemExit) as ended, leave_on_signals(resumes=False):
            reindex_tables(direct.settings(table))
            raise SystemExit(0)
    assert ended.value.code == (143 if moment == "publish" else 0)
    behind = list(direct.search.ask("GET", f"{index}*"))
    assert behind == [index] if moment == "publish" else len(behind) == 1 and behind != [index]
    assert ("stranger" in direct.search.documents(index)) == (moment == "publish")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    assert [step.kind for step in direct.run(table)] == ["snapshot published"]
    assert sorted(set(direct.search.documents(index)) - {"stranger"}) == ["1", "2", "3"]


def test_an_alias_that_is_rolled_over_stays_equal_to_the_table(direct: Direct) -> None:
    """Updates and deletes of a table find their documents in older indexes behind the alias, each once."""
    table = _table(direct, "turned", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.search.ask("PUT", f"{index}-000001", {"aliases": {index: {"is_write_index": True}}})
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    direct.run(table)
    direct.search.ask("POST", f"{index}/_rollover")
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'B' WHERE id = 2")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 3")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (4, 'd')")
    direct.run(table)
    found = {name: direct.search.documents(f"{index}-{name}") for name in ("000001", "000002")}
    ends = {name: {i: d["v"] for i, d in documents.items()} for name, documents in found.items()}
    assert ends == {"000001": {"1": "a", "2": "B"}, "000002": {"4": "d"}}


def _names(direct: Direct, table: str) -> list[str]:
    return sorted(direct.search.documents(index_of(table))) if direct.search.exists(index_of(table)) else []


HOLES = [
    ("holed", "k", "('a', 1, 1.0), (NULL, 2, 1.0), ('c', 3, 1.0)", {"a", "c"}),
    ("half", "k,n", "('a', 1, 1.0), ('b', NULL, 1.0), (NULL, 3, 1.0)", {"a-1"}),
]


@pytest.mark.parametrize(
    ("name", "keys", "rows", "fit"),
    tiered(HOLES, HOLES[1:], lambda case: case[0]),
)
def test_a_row_with_a_null_in_its_key_stops_the_table(
    direct: Direct, name: str, keys: str, rows: str, fit: set[str]
) -> None:
    """No document is named by a null: the table stops, and says which column of which table, and what to do."""
    table = _table(direct, name, "k STRING, n BIGINT, d DOUBLE", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES {rows}")
    extra = {"message.key.columns": f"{table}:{keys}"}
    with pytest.raises(FatalError, match=rf"table {table}, snapshot \d+: .*null in column [kn].*message\.key\.columns"):
        direct.run(table, extra)
    assert set(_names(direct, table)) <= fit


def test_a_key_that_becomes_null_stops_the_table(direct: Direct) -> None:
    """A row whose key becomes null is not taken for the one that it was before."""
    table = _table(direct, "emptied", "id BIGINT NOT NULL, k STRING, v STRING")
    extra = {"message.key.columns": f"{table}:k"}
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    direct.run(table, extra)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET k = NULL, v = 'z' WHERE id = 1")
    with pytest.raises(FatalError, match="null in column k"):
        direct.run(table, extra)
    assert {i: d["v"] for i, d in direct.search.documents(index_of(table)).items()} == {"a": "x", "b": "y"}


def test_a_key_column_that_was_renamed_is_followed(direct: Direct) -> None:
    """Snapshots from both sides of the rename are read by the name of now; by the earlier one those before it are."""
    table = _table(direct, "renamed_key", "id BIGINT NOT NULL, k STRING, v STRING", keys=False)
    earlier, now = ({"message.key.columns": f"{table}:{name}"} for name in ("k", "code"))
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a', 'x'), (2, 'b', 'x')")
    direct.run(table, earlier)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'y' WHERE k = 'a'")
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} RENAME COLUMN k TO code")
    assert direct.feed(table, now).step(pinned=True)
    assert direct.search.documents(index_of(table))["a"]["v"] == "y"
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c', 'x')")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE code = 'b'")
    with pytest.raises(ConfigError, match=r"message\.key\.columns names k, which .* there are id, code, v; now"):
        direct.run(table, earlier)
    direct.run(table, now)
    assert {i: d["v"] for i, d in direct.search.documents(index_of(table)).items()} == {"a": "y", "c": "x"}


@pytest.mark.thorough
def test_odd_keys_name_documents_of_their_own(direct: Direct) -> None:
    """NaN, infinities, empty texts and texts of any length are values: each has a document."""
    table = _table(direct, "odd", "k STRING, d DOUBLE, v INT", keys=False)
    extra = {"message.key.columns": f"{table}:k,d"}
    long = "'" + "x" * 600 + "'"
    values = f"('', double('NaN'), 1), ('', 0D, 2), ('-', double('Infinity'), 3), ({long}, 1D, 4), ({long}, 2D, 5)"
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES {values}")
    direct.run(table, extra)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = v + 10 WHERE v IN (1, 2, 5)")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE v IN (3, 4)")
    direct.run(table, extra)
    assert sorted(d["v"] for d in direct.search.documents(index_of(table)).values()) == [11, 12, 15]


def test_rows_from_before_an_upgrade_have_no_row_id_and_stop_the_table(direct: Direct) -> None:
    """A table upgraded to v3 without identifier columns: rows that have no id yet are not sent under one name; once a
    commit has numbered them the table is read as any other."""
    table = _table(direct, "upgraded", "v STRING", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('b'), ('c')")
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} SET TBLPROPERTIES ('format-version'='3')")
    with pytest.raises(FatalError, match=rf"table {table}, snapshot \d+: .*no _row_id.*rewrite_data_files"):
        direct.run(table)
    assert _names(direct, table) == []
    options = "options => map('rewrite-all','true')"
    direct.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', {options})")
    direct.run(table)
    assert sorted(d["v"] for d in direct.search.documents(index_of(table)).values()) == ["a", "b", "c"]


@pytest.mark.thorough
def test_a_row_that_was_never_numbered_stops_the_table_when_it_is_deleted(direct: Direct) -> None:
    """Changes of rows from before the upgrade, made before anything numbered them, are not sent under one name."""
    table = _table(direct, "late_upgrade", "v STRING", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('b'), ('c')")
    extra = {"snapshot.mode": "no_data"}
    direct.run(table, extra)
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} SET TBLPROPERTIES ('format-version'='3')")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE v = 'b'")
    with pytest.raises(FatalError, match=rf"table {table}, snapshot \d+: .*no _row_id"):
        direct.run(table, extra)
    assert _names(direct, table) == []


def test_an_index_that_is_deleted_stops_the_table(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted between two snapshots, in one run or between two, made again by OpenSearch or not: a clear stop, and no
    index of later changes alone. `icebridge reindex` fills it, and changes follow."""
    from connector.cli import reindex

    table = _table(direct, "deleted", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    feed = direct.feed(table)
    while feed.step(pinned=True):
        pass
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    direct.search.ask("DELETE", index)
    for step in (lambda: feed.step(pinned=False), lambda: direct.run(table)):
        with pytest.raises(GapError, match=rf"table {table}: index {index} is gone.*icebridge reindex"):
            step()
    assert not direct.search.exists(index)
    direct.search.ask("PUT", f"{index}/_doc/9", {"id": 9})
    with pytest.raises(GapError, match=rf"table {table}: index {index} was deleted and made again"):
        direct.run(table)
    assert list(direct.search.documents(index)) == ["9"], "nobody's documents are touched"
    monkeypatch.setattr(reindex, "open_session", lambda _: nullcontext(direct.spark))
    reindex_tables(direct.settings(table))
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 1")
    direct.run(table)
    assert sorted(direct.search.documents(index)) == ["2", "3"]


def test_an_index_that_is_deleted_while_documents_are_sent_stops_the_table(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OpenSearch makes for documents that were under way is seen before the position moves."""
    table = _table(direct, "undermined", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    direct.run(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    confirm = IndexAdmin.confirm_indexes

    def undermined(own: IndexAdmin, known: IndexInfo) -> IndexInfo:
        direct.search.ask("DELETE", index)
        direct.search.ask("PUT", f"{index}/_doc/3", {"id": 3})
        return confirm(own, known)

    monkeypatch.setattr(IndexAdmin, "confirm_indexes", undermined)
    with pytest.raises(GapError, match=rf"index {index} was deleted and made again"):
        direct.run(table)
    monkeypatch.undo()
    with pytest.raises(GapError, match=rf"table {table}: index {index}"):
        direct.run(table)


@pytest.mark.thorough
def test_a_name_that_a_column_had_is_anothers(direct: Direct) -> None:
    """After two renames and a new column of the name in between every document is taken, and names lead to columns."""
    table = _table(direct, "thrice", "id BIGINT NOT NULL, v STRING")
    change = f"ALTER TABLE {CATALOG}.{table}"
    direct.spark.sql(f"{change} RENAME COLUMN v TO w")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'one')")
    direct.run(table)
    direct.spark.sql(f"{change} RENAME COLUMN w TO x")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (2, 'two')")
    direct.run(table)
    direct.spark.sql(f"{change} RENAME COLUMN x TO y")
    direct.spark.sql(f"{change} ADD COLUMNS (x INT, w DATE)")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'three', 7, date'2024-02-03')")
    direct.run(table)
    index = index_of(table)
    assert direct.search.documents(index) == {
        "1": {"id": 1, "w": "one"},
        "2": {"id": 2, "w": "two"},
        "3": {"id": 3, "w": "three", "x_3": 7, "w_4": "2024-02-03"},
    }
    mapping = direct.search.mapping(index)
    assert (mapping["x"], mapping["y"]) == ({"type": "alias", "path": "x_3"}, {"type": "alias", "path": "w"})


def test_two_tables_whose_names_differ_by_capitals(direct: Direct) -> None:
    """Their index would be one: the second is refused beside the first, and by itself, with both names."""
    tables = [_table(direct, name, "id BIGINT NOT NULL, v STRING") for name in ("Twin", "twin")]
    for table in tables:
        direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, '{table}')")
    settings = load_source([direct.file("twins", tables)], environ={})
    with pytest.raises(FatalError, match=r"table db\.twin: its index lake\.db\.twin is also that of table db\.Twin"):
        build_source(direct.spark, settings).run(once=True)
    with pytest.raises(FatalError, match=r"has the documents of lake\.db\.Twin, and lake\.db\.twin maps to the same"):
        direct.run("db.twin")
    assert direct.search.documents("lake.db.twin") == {"1": {"id": 1, "v": "db.Twin"}}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", tiered(["incremental", "blocking"], ["incremental"]))
def test_a_signal_reads_a_table_into_its_index_again(direct: Direct, kind: str) -> None:
    """Documents that were lost come back, changed and deleted rows stay as they are, also where no key was read yet."""
    table = _table(direct, f"again_{kind}", "id BIGINT NOT NULL, v STRING")
    signals = direct.home / f"{kind}.txt"
    extra = {"signal.enabled.channels": "file", "signal.file": str(signals), "incremental.snapshot.chunk.size": "1"}
    name = f"{CATALOG}.{table}"
    direct.spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    direct.spark.sql(f"INSERT INTO {name} VALUES (3, 'c'), (4, 'd')")
    direct.run(table, extra)
    direct.search.ask("DELETE", f"{index_of(table)}/_doc/1?refresh=true")
    direct.spark.sql(f"UPDATE {name} SET v = 'B' WHERE id = 2")
    direct.spark.sql(f"DELETE FROM {name} WHERE id = 3")
    direct.run(table, extra)
    assert sorted(direct.search.documents(index_of(table))) == ["2", "4"]
    data = {"data-collections": [table], "type": kind}
    signals.write_text(json.dumps({"id": kind, "type": "execute-snapshot", "data": data}) + "\n")
    steps = direct.run(table, extra)
    assert {step.kind for step in steps} == {"chunk read"}
    found = {i: document["v"] for i, document in direct.search.documents(index_of(table)).items()}
    assert found == {"1": "a", "2": "B", "4": "d"}
    assert direct.run(table, extra) == []
