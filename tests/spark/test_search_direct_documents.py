"""Iceberg tables -> documents with no Kafka between, on a real node: their ids, fields and values.

ICEBRIDGE_HISTORIES (1), ICEBRIDGE_STEPS (4, in `make test` 2) and ICEBRIDGE_SEED (0) are those of the source's
histories.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from pyspark.sql import SparkSession

from connector.errors import ConfigError, FatalError
from tests.clients.search import Search
from tests.harness.rounds import THOROUGH, seeded
from tests.harness.tiers import tiered
from tests.histories.source_tables import CATALOG, Kind, Subject
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
    return Direct.open(spark, tmp_path_factory.mktemp("documents"), search, CATALOG)


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


@pytest.mark.thorough
def test_event_metadata_as_fields(direct: Direct) -> None:
    """Operation, table, snapshot id, document id and bulk action, where they are asked for."""
    table = direct.create("told", "id BIGINT NOT NULL, v STRING")
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
    table = direct.create("carried", "id BIGINT NOT NULL, v STRING")
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
    table = direct.create("renamed", "id BIGINT NOT NULL, a STRING")
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
    table = direct.create("refused_names", columns)
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
    table = direct.create("refused_inner_names", columns)
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
    table = direct.create("lineage", "v STRING", keys=False, version=3)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('b')")
    direct.run(table)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'B' WHERE v = 'b'")
    direct.run(table)
    assert sorted(d["v"] for d in direct.search.documents(index_of(table)).values()) == ["B", "a"]


def test_an_append_only_table_without_key_gets_ids_from_opensearch(direct: Direct) -> None:
    """Without identifier columns (format v2) every row is a document whose id OpenSearch generates."""
    table = direct.create("log", "v STRING", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('a')")
    direct.run(table)
    assert [d["v"] for d in direct.search.documents(index_of(table)).values()] == ["a", "a"]


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
    table = direct.create(name, "k STRING, n BIGINT, d DOUBLE", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES {rows}")
    extra = {"message.key.columns": f"{table}:{keys}"}
    with pytest.raises(FatalError, match=rf"table {table}, snapshot \d+: .*null in column [kn].*message\.key\.columns"):
        direct.run(table, extra)
    assert set(_names(direct, table)) <= fit


def test_a_key_that_becomes_null_stops_the_table(direct: Direct) -> None:
    """A row whose key becomes null is not taken for the one that it was before."""
    table = direct.create("emptied", "id BIGINT NOT NULL, k STRING, v STRING")
    extra = {"message.key.columns": f"{table}:k"}
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    direct.run(table, extra)
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET k = NULL, v = 'z' WHERE id = 1")
    with pytest.raises(FatalError, match="null in column k"):
        direct.run(table, extra)
    assert {i: d["v"] for i, d in direct.search.documents(index_of(table)).items()} == {"a": "x", "b": "y"}


def test_a_key_column_that_was_renamed_is_followed(direct: Direct) -> None:
    """Snapshots from both sides of the rename are read by the name of now; by the earlier one those before it are."""
    table = direct.create("renamed_key", "id BIGINT NOT NULL, k STRING, v STRING", keys=False)
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
    table = direct.create("odd", "k STRING, d DOUBLE, v INT", keys=False)
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
    table = direct.create("upgraded", "v STRING", keys=False)
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
    table = direct.create("late_upgrade", "v STRING", keys=False)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES ('a'), ('b'), ('c')")
    extra = {"snapshot.mode": "no_data"}
    direct.run(table, extra)
    direct.spark.sql(f"ALTER TABLE {CATALOG}.{table} SET TBLPROPERTIES ('format-version'='3')")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE v = 'b'")
    with pytest.raises(FatalError, match=rf"table {table}, snapshot \d+: .*no _row_id"):
        direct.run(table, extra)
    assert _names(direct, table) == []


@pytest.mark.thorough
def test_a_name_that_a_column_had_is_anothers(direct: Direct) -> None:
    """After two renames and a new column of the name in between every document is taken, and names lead to columns."""
    table = direct.create("thrice", "id BIGINT NOT NULL, v STRING")
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
