"""Changes of key: which deletes and creates are one row, whatever the kind of table and however files were written."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.source.changes.pairing import pair_key_changes
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey
from connector.source.envelope.transaction_order import number_changes
from tests.harness.tiers import tiered
from tests.histories.source_tables import COW, MOR, Kind, Subject, use_catalog

pytestmark = pytest.mark.spark
BY_ROW = RowKey(KeyKind.IDENTIFIERS, ("id",), RowIdentity.ROW_ID)
BY_ID = RowKey(KeyKind.CONFIGURED, ("v",), RowIdentity.IDENTIFIERS, ("id",))
COLUMNS = "id bigint NOT NULL, p string, v string"
NESTED = f"{COLUMNS}, s struct<x: array<int>>"
Found = list[tuple[str, Any, Any]]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("moves"))
    return spark


def brief(events: list[Any]) -> Found:
    """Operation and the ids and values of both images, in order of their rows."""
    short = [(op, *(None if image is None else (image[0], image[2]) for image in images)) for op, *images, _ in events]
    return sorted(short, key=repr)


def frame(session: SparkSession, *rows: tuple[str, Any, Any, Any, bool]) -> DataFrame:
    return session.createDataFrame(
        list(rows), "op string, before struct<a: int>, after struct<a: int>, row_id long, sole boolean"
    )


def test_only_what_stands_alone_is_one_row(session: SparkSession) -> None:
    """One delete and one create that agree are an update; more of them, nulls, or keys with other events stay."""
    rows = [
        ("d", (1,), None, 1, True),
        ("c", None, (2,), 1, True),
        ("d", (3,), None, 2, True),
        ("d", (4,), None, 2, True),
        ("c", None, (5,), 2, True),
        ("d", (6,), None, 3, False),
        ("c", None, (7,), 3, True),
        ("d", (8,), None, None, True),
        ("c", None, (9,), None, True),
        ("u", (10,), (11,), 4, True),
        ("c", None, (12,), 4, True),
    ]
    made = pair_key_changes(frame(session, *rows), [F.col("row_id")])
    assert made.columns == ["op", "before", "after", "row_id"]
    found = {(r.op, r.before and r.before.a, r.after and r.after.a) for r in made.collect()}
    assert found == {
        ("u", 1, 2),
        ("d", 3, None),
        ("d", 4, None),
        ("c", None, 5),
        ("d", 6, None),
        ("c", None, 7),
        ("d", 8, None),
        ("c", None, 9),
        ("u", 10, 11),
        ("c", None, 12),
    }


TABLES = {
    "cow": (Kind(3, COW, partitioned=False, identifiers=True), COLUMNS),
    "cow-partitioned": (Kind(3, COW, partitioned=True, identifiers=True), COLUMNS),
    "mor-partitioned": (Kind(3, MOR, partitioned=True, identifiers=True), COLUMNS),
    "mor-nested": (Kind(3, MOR, partitioned=False, identifiers=True), NESTED),
}


@pytest.mark.parametrize("table", tiered(TABLES, ["mor-nested"]))
def test_row_ids_tell_of_a_change_of_key(session: SparkSession, table: str) -> None:
    """On v3 tables an updated identifier column is one change, also into another partition; a key has one event."""
    kind, columns = TABLES[table]
    subject = Subject(session, kind, columns)
    rest = ", named_struct('x', array(1))" if columns == NESTED else ""
    subject.sql(f"INSERT INTO {{t}} SELECT id, 'a', concat('v', id){rest} FROM range(1, 9, 1, 1)")
    subject.follow(BY_ROW)
    subject.sql("UPDATE {t} SET id = id + 100, p = 'b' WHERE id IN (1, 2)")
    assert brief(subject.follow(BY_ROW)[0]) == [("u", (1, "v1"), (101, "v1")), ("u", (2, "v2"), (102, "v2"))]
    # 3 and 4 swap; 5 goes to 6, whose row goes to 60; 7 is another row now.
    subject.sql(
        "UPDATE {t} SET id = CASE id WHEN 3 THEN 4 WHEN 4 THEN 3 WHEN 5 THEN 6 WHEN 6 THEN 60 END "
        "WHERE id IN (3, 4, 5, 6)"
    )
    assert brief(subject.follow(BY_ROW)[0]) == [
        ("c", None, (60, "v6")),
        ("d", (5, "v5"), None),
        ("u", (3, "v3"), (3, "v4")),
        ("u", (4, "v4"), (4, "v3")),
        ("u", (6, "v6"), (6, "v5")),
    ]
    rest = ", named_struct('x', array(1)) AS s" if columns == NESTED else ""
    subject.sql(
        f"MERGE INTO {{t}} t USING (SELECT 7 AS k, 7L AS id, 'a' AS p, 'x' AS v{rest} UNION ALL SELECT NULL, 70L, 'a', "
        f"'y'{rest}) s ON t.id = s.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    assert brief(subject.follow(BY_ROW)[0]) == [("c", None, (70, "y")), ("d", (7, "v7"), None)]


def test_identifier_columns_tell_of_a_change_of_a_configured_key(session: SparkSession) -> None:
    """Where other columns are the key, a row with the same identifiers and another key is one change."""
    subject = Subject(session, Kind(2, COW, partitioned=False, identifiers=True), COLUMNS)
    subject.sql("INSERT INTO {t} SELECT id, 'a', concat('v', id) FROM range(1, 6, 1, 1)")
    subject.follow(BY_ID)
    subject.sql("UPDATE {t} SET v = CASE id WHEN 1 THEN 'new' WHEN 2 THEN 'v3' WHEN 3 THEN 'v2' END WHERE id < 4")
    assert brief(subject.follow(BY_ID)[0]) == [
        ("u", (1, "v1"), (1, "new")),
        ("u", (2, "v2"), (3, "v2")),
        ("u", (3, "v3"), (2, "v3")),
    ]


def test_without_ids_a_changed_key_is_two_rows(session: SparkSession) -> None:
    """A v2 table whose identifier column is its key has nothing that tells: a delete and a create."""
    subject = Subject(session, Kind(2, COW, partitioned=False, identifiers=True), COLUMNS)
    subject.sql("INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'a', 'y')")
    subject.follow()
    subject.sql("UPDATE {t} SET id = 9 WHERE id = 1")
    assert brief(subject.follow()[0]) == [("c", None, (9, "x")), ("d", (1, "x"), None)]


def test_a_walk_over_large_files_finds_it_too(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are walked side by side give the ids of their rows, those held in the file and those counted."""
    monkeypatch.setattr("connector.source.changes.rewrites.file_diff.MIN_REWRITTEN_ROWS", 1)
    subject = Subject(session, Kind(3, COW, partitioned=False, identifiers=True), COLUMNS)
    subject.sql("INSERT INTO {t} SELECT id, 'a', concat('v', id) FROM range(0, 3000, 1, 1)")
    subject.follow(BY_ROW)
    for start in (0, 1):
        subject.sql(f"UPDATE {{t}} SET id = id + 10000 WHERE id IN ({start}, {start + 1000})")
        found = subject.follow(BY_ROW)[0]
        assert brief(found) == [
            ("u", (key, f"v{key}"), (key + 10000, f"v{key}")) for key in sorted((start, start + 1000), key=repr)
        ]


def test_numbered_changes_of_a_key_stay_together(session: SparkSession) -> None:
    """However many changes a key has, one task brings them out, deletes first, and no tombstone comes too late."""
    kept = {name: session.conf.get(name) for name in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")}
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        rows = session.range(3_000).selectExpr("id % 2 AS k", "IF(id % 3 = 0, 'u', 'd') AS op", "id AS v")
        key, rank = F.col("k"), F.when(F.col("op") == "d", 0).otherwise(1)
        with number_changes(rows, [key, rank, F.col("v")], [key]) as found:
            assert found.count == 3_000
            placed = found.changes.withColumn("task", F.spark_partition_id()).orderBy("total_order").collect()
    finally:
        for name, text in kept.items():
            session.conf.set(name, text)
    assert [row.total_order for row in placed] == list(range(1, 3_001))
    assert [row.k for row in placed] == [0] * 1_500 + [1] * 1_500
    for key_of in (0, 1):
        mine = [row for row in placed if row.k == key_of]
        assert len({row.task for row in mine}) == 1
        assert [row.op for row in mine] == ["d"] * 1_000 + ["u"] * 500
