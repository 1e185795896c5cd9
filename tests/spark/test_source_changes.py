"""A named change of a table -> the events of its rows: cases of Iceberg's own changelog tests, and those it refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.snapshot_schema import load_snapshot_schema
from connector.iceberg.read.file_changes import read_file_changes
from connector.iceberg.read.table_reader import TableReader
from connector.source.changes.chunk_rows import keep_rows
from connector.source.changes.row_filter import to_condition
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey
from connector.source.changes.snapshot_diff import SnapshotDiff
from tests.harness.tiers import tiered
from tests.histories.source_tables import COLUMNS, COW, MOR, Kind, Subject, changes_of, filled, plain, use_catalog

pytestmark = pytest.mark.spark
V2_COW = Kind(2, COW, partitioned=False, identifiers=False)
V2_COW_KEYED = Kind(2, COW, partitioned=False, identifiers=True)
V3_PARTS = Kind(3, MOR, partitioned=True, identifiers=False)
V2_MOR_PARTS = Kind(2, MOR, partitioned=True, identifiers=True)
V2_COW_PARTS = Kind(2, COW, partitioned=True, identifiers=True)
V2_MOR = Kind(2, MOR, partitioned=False, identifiers=True)
V3_MOR = Kind(3, MOR, partitioned=False, identifiers=True)
V3_COW = Kind(3, COW, partitioned=False, identifiers=False)


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("changes"))
    return spark


def _one(subject: Subject, statement: str) -> list[tuple[str, Any, Any]]:
    """Run a statement and give its events in order of their rows."""
    subject.sql(statement)
    return _events(subject)


def _events(subject: Subject) -> list[tuple[str, Any, Any]]:
    (found,) = subject.follow()
    return sorted(((op, before, after) for op, before, after, _ in found), key=repr)


def test_overwrite_of_a_partition(session: SparkSession) -> None:
    """An overwrite deletes what went, creates what came, and is silent about the rest."""
    subject = filled(session, V2_COW_PARTS, "(1, 'a', 'x'), (2, 'a', 'y'), (3, 'b', 'z')")
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        found = _one(subject, "INSERT OVERWRITE {t} VALUES (1, 'a', 'x'), (4, 'a', 'n')")
    finally:
        session.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert found == [("c", None, (4, "a", "n")), ("d", (2, "a", "y"), None)]


@pytest.mark.parametrize("kind", tiered([V2_COW_PARTS, V3_PARTS], [V3_PARTS], str))
def test_deleted_files_need_no_shuffle(session: SparkSession, kind: Kind) -> None:
    """A delete of whole files is read from the removed files alone."""
    subject = filled(session, kind, "(1, 'a', 'x'), (2, 'a', 'y'), (3, 'b', 'z')")
    assert _one(subject, "DELETE FROM {t} WHERE p = 'a'") == [("d", (1, "a", "x"), None), ("d", (2, "a", "y"), None)]
    table = subject.table()
    frame = changes_of(session, table, table.snapshot_id or 0, RowKey())
    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()


def test_appends_need_no_shuffle(session: SparkSession) -> None:
    """Appended rows are creates as they are."""
    subject = filled(session, V2_COW_KEYED, "(1, 'a', 'x')")
    assert _one(subject, "INSERT INTO {t} VALUES (2, 'b', NULL)") == [("c", None, (2, "b", None))]
    table = subject.table()
    frame = changes_of(session, table, table.snapshot_id or 0, RowKey(KeyKind.IDENTIFIERS, ("id",)))
    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()


def test_rewritten_manifests_and_data_files_are_silent(session: SparkSession) -> None:
    """Manifest rewrites and compaction are passed over; entries carried into new manifests are no changes."""
    subject = filled(session, V2_COW_KEYED, "(1, 'a', 'x'), (2, 'a', 'y')")
    subject.sql("INSERT INTO {t} VALUES (3, 'c', 'z')")
    subject.follow()
    subject.call("rewrite_manifests")
    subject.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    assert subject.follow() == [[], []]
    assert _one(subject, "INSERT INTO {t} VALUES (4, 'd', 'z')") == [("c", None, (4, "d", "z"))]


DUPLICATES: list[tuple[str, dict[str, int]]] = [
    ("(1,'a','x'), (1,'a','x'), (2,'a','y')", {"d": 1}),
    ("(1,'a','x'), (1,'a','x'), (1,'a','x'), (1,'a','x'), (2,'a','y')", {"c": 1}),
    ("(1,'a','x'), (1,'a','x'), (1,'a','x'), (2,'a','y')", {}),
    ("(1,'a',NULL), (1,'a','x'), (2,'a','y')", {"d": 2, "c": 1}),
]


@pytest.mark.parametrize(("after", "expected"), tiered(DUPLICATES, DUPLICATES[3:]))
@pytest.mark.parametrize("kind", tiered([V2_COW, V2_COW_KEYED], [V2_COW_KEYED], str))
def test_duplicate_rows_are_counted(session: SparkSession, kind: Kind, after: str, expected: dict[str, int]) -> None:
    """Of equal rows exactly as many events come as their number changed, with and without identifier columns."""
    subject = filled(session, kind, "(1,'a','x'), (1,'a','x'), (1,'a','x'), (2,'a','y')")
    subject.sql(f"INSERT OVERWRITE {{t}} VALUES {after}")
    (found,) = subject.follow()
    if kind.identifiers and expected == {"d": 2, "c": 1}:
        expected = {"d": 1, "u": 1}
    assert Counter(op for op, *_ in found) == expected


def test_duplicate_identifiers_end_with_a_row(session: SparkSession) -> None:
    """Where two rows of one identifier become one, the delete comes before the update."""
    subject = filled(session, V2_COW_KEYED, "(1,'a','x'), (1,'a','y')")
    subject.sql("INSERT OVERWRITE {t} VALUES (1,'a','z')")
    (found,) = subject.follow()
    assert [op for op, *_ in found] == ["d", "u"]


@pytest.mark.parametrize("kind", tiered([V2_COW_KEYED, V2_MOR, V3_MOR], [V3_MOR], str))
def test_key_change_is_delete_and_create(session: SparkSession, kind: Kind) -> None:
    """A row whose identifier changed goes under the old one and comes under the new one."""
    subject = filled(session, kind, "(1,'a','x'), (2,'a','y')")
    found = _one(subject, "UPDATE {t} SET id = 9 WHERE id = 1")
    assert found == [("c", None, (9, "a", "x")), ("d", (1, "a", "x"), None)]


def test_configured_columns_pair_updates(session: SparkSession) -> None:
    """Rows without identifier columns are paired by the configured ones, nulls too."""
    subject = filled(session, V2_COW, "(1,'a','x'), (2,NULL,'y')")
    subject.sql("UPDATE {t} SET v = 'n'")
    (found,) = subject.follow(RowKey(KeyKind.CONFIGURED, ("p",)))
    assert sorted(op for op, *_ in found) == ["u", "u"]


@pytest.mark.parametrize("kind", tiered([V2_COW_PARTS, V2_MOR_PARTS], [V2_MOR_PARTS], str))
def test_row_that_moves_partition_is_one_update(session: SparkSession, kind: Kind) -> None:
    """A changed partition column is an update, not a delete and a create."""
    subject = filled(session, kind, "(1,'a','x'), (2,'a','y'), (3,'b','y')")
    assert _one(subject, "UPDATE {t} SET p = 'b' WHERE id = 1") == [("u", (1, "a", "x"), (1, "b", "x"))]


@pytest.mark.parametrize("kind", tiered([V2_COW_KEYED, V2_MOR, V3_MOR, V3_COW], [V3_COW], str))
def test_equal_outcome_is_silent(session: SparkSession, kind: Kind) -> None:
    """An update that changes nothing, and maps whose entries only change their order, are no changes."""
    values = "(1, map('a', 1, 'b', 2), CAST('NaN' AS double)), (2, map(), -0D)"
    subject = filled(session, kind, values, "id bigint NOT NULL, m map<string, int>, d double")
    assert _one(subject, "UPDATE {t} SET m = map('b', 2, 'a', 1), d = CAST('NaN' AS double) WHERE id = 1") == []
    found = _one(subject, "UPDATE {t} SET d = 0D WHERE id = 2")
    assert found == [("u", (2, plain({}), "-0.0"), (2, plain({}), "0.0"))]


def test_nested_values_are_told_apart(session: SparkSession) -> None:
    """Nulls and nesting count: [null, 1], [1] and [[1]] are different values."""
    values = "(1, array(1, NULL), named_struct('a', CAST(NULL AS int), 'b', 1)), (2, array(1), NULL)"
    columns = "id bigint NOT NULL, l array<int>, s struct<a: int, b: int>"
    subject = filled(session, V2_COW_KEYED, values, columns)
    found = _one(subject, "UPDATE {t} SET l = array(NULL, 1), s = named_struct('a', 1, 'b', CAST(NULL AS int))")
    assert [(op, before[0]) for op, before, _ in found] == [("u", 1), ("u", 2)]


def test_odd_column_names(session: SparkSession) -> None:
    """Dots, spaces, quotes and letter case in column names come through."""
    subject = filled(session, V2_COW_KEYED, "(1, 'x', 'y')", "id bigint NOT NULL, `the.value` string, `a b``c` string")
    assert _one(subject, "UPDATE {t} SET `the.value` = 'z'") == [("u", (1, "x", "y"), (1, "z", "y"))]
    table = subject.table()
    frame = changes_of(session, table, table.snapshot_id or 0, RowKey(KeyKind.CONFIGURED, ("the.value",)))
    assert frame.schema["after"].dataType.names == ["id", "the.value", "a b`c"]
    assert sorted(row.op for row in frame.collect()) == ["c", "d"]


def test_odd_names_in_nested_keys(session: SparkSession) -> None:
    """Dots and quotes in the names of key fields, and of the structs around them, come through, in filters too."""
    columns = "`a.s` struct<`x.y`: bigint NOT NULL, `q``t`: string NOT NULL> NOT NULL, v string"
    subject = Subject(session, V2_COW, columns)
    names = session.sparkContext._gateway.new_array(session._jvm.java.lang.String, 2)
    names[0], names[1] = "a.s.x.y", "a.s.q`t"
    subject.table().java.updateSchema().setIdentifierFields(names).commit()
    subject.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ named_struct('x.y', id, 'q`t', 'k'), 'x' FROM range(3)")
    subject.follow()
    assert _one(subject, "UPDATE {t} SET v = 'y' WHERE v = 'x' AND `a.s`.`x.y` = 1") == [
        ("u", ((1, "k"), "x"), ((1, "k"), "y"))
    ]
    table = subject.table()
    schema = load_snapshot_schema(session, table, table.snapshot_id or 0)
    kept = RowKey(KeyKind.CONFIGURED, ("v",), RowIdentity.IDENTIFIERS, schema.identifiers)
    (found,) = changes_of(session, table, table.snapshot_id or 0, kept).collect()
    assert found.op == "u"
    condition = to_condition(EqualTo("a.s.x.y", 1), schema.iceberg, F.col("after"))
    assert keep_rows(changes_of(session, table, table.snapshot_id or 0, kept), condition).count() == 1


@pytest.mark.thorough
def test_rows_from_before_an_upgrade(session: SparkSession) -> None:
    """A table upgraded to v3 has old rows without row ids: they are followed, and those that stay are silent."""
    subject = filled(session, V2_COW, "(1,'a','x'), (2,'a','y')")
    subject.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    found = _one(subject, "UPDATE {t} SET v = 'n' WHERE id = 1")
    assert {(before or after)[0] for _, before, after in found} == {1}
    assert _one(subject, "UPDATE {t} SET v = 'm' WHERE id = 1") == [("u", (1, "a", "n"), (1, "a", "m"))]
    assert _one(subject, "DELETE FROM {t} WHERE id = 2") == [("d", (2, "a", "y"), None)]


def test_three_snapshots_of_equality_deletes(session: SparkSession) -> None:
    """Each equality delete takes the rows that were live before it, not those of its own snapshot, not those gone."""
    subject = Subject(session, V2_MOR, COLUMNS)
    row = {"p": "a", "v": "x"}
    subject.upsert([{"id": 1, **row}, {"id": 2, **row}])
    subject.follow()
    subject.upsert([{"id": 1, "p": "a", "v": "y"}, {"id": 3, **row}])
    assert _events(subject) == [("c", None, (3, "a", "x")), ("u", (1, "a", "x"), (1, "a", "y"))]
    subject.upsert([{"id": 1, "p": "a", "v": "y"}], deleted=[{"id": 2}, {"id": 7}])
    assert _events(subject) == [("d", (2, "a", "x"), None)]
    subject.upsert([], deleted=[{"id": 1}, {"id": 2}])
    assert _events(subject) == [("d", (1, "a", "y"), None)]


def test_removed_file_counts_only_rows_that_were_live(session: SparkSession) -> None:
    """A file that goes takes along no row that a delete file had taken before."""
    kind = Kind(2, MOR, partitioned=True, identifiers=True)
    subject = filled(session, kind, "(1,'a','x'), (2,'a','y'), (3,'a','z'), (4,'b','z')")
    assert _one(subject, "DELETE FROM {t} WHERE id = 2") == [("d", (2, "a", "y"), None)]
    assert _one(subject, "DELETE FROM {t} WHERE p = 'a'") == [("d", (1, "a", "x"), None), ("d", (3, "a", "z"), None)]


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_position_deletes_of_both_scopes(session: SparkSession, granularity: str) -> None:
    """Delete files for one data file and for a whole partition touch the rows they name, each once."""
    subject = Subject(session, V2_MOR, COLUMNS, f", 'write.delete.granularity'='{granularity}'")
    for start in (0, 10):
        subject.sql(f"INSERT INTO {{t}} SELECT id + {start}, 'a', 'x' FROM range(5)")
    subject.follow()
    deleted = _one(subject, "DELETE FROM {t} WHERE id IN (1, 11)")
    assert deleted == [("d", (1, "a", "x"), None), ("d", (11, "a", "x"), None)]
    assert _one(subject, "DELETE FROM {t} WHERE id IN (1, 2, 11)") == [("d", (2, "a", "x"), None)]


def test_rows_deleted_in_the_snapshot_that_added_them(session: SparkSession, tmp_path: Path) -> None:
    """A row that its own snapshot deletes by position was never there."""
    subject = filled(session, V2_MOR, "(1,'a','x')")
    _add_with_deletes(subject, [(5, "a", "n"), (6, "a", "n"), (7, "a", "n")], [1], tmp_path)
    assert _events(subject) == [("c", None, (5, "a", "n")), ("c", None, (7, "a", "n"))]


def _add_with_deletes(subject: Subject, values: list[Any], positions: list[int], folder: Path) -> None:
    """Commit a data file and a position delete file against it in one snapshot."""
    table = subject.table()
    data, deletes = str(folder / "data.parquet"), str(folder / "deletes.parquet")
    columns = table.layout().columns
    pq.write_table(pa.Table.from_pylist([dict(zip(columns.names, v, strict=True)) for v in values], columns), data)
    path = pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"})
    place = pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"})
    named = pa.schema([path, place])
    iceberg: Any = subject.spark._jvm.org.apache.iceberg
    java = table.java

    def described(builder: Any, path: str) -> Any:
        file = java.io().newInputFile(path)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(java))
        return builder.withInputFile(file).withFormat("PARQUET").withMetrics(metrics).build()

    added = described(iceberg.DataFiles.builder(java.spec()), data)
    places = [{"file_path": str(added.location()), "pos": place} for place in positions]
    pq.write_table(pa.Table.from_pylist(places, named), deletes)
    gone = described(iceberg.FileMetadata.deleteFileBuilder(java.spec()).ofPositionDeletes(), deletes)
    java.newRowDelta().addRows(added).addDeletes(gone).commit()


def test_times_and_nanoseconds(session: SparkSession) -> None:
    """Types that Spark lacks are carried as numbers: microseconds of the day, nanoseconds since the epoch."""
    subject = Subject(session, Kind(3, MOR, partitioned=False, identifiers=False), "id bigint NOT NULL")
    table = subject.table()
    types: Any = session._jvm.org.apache.iceberg.types.Types
    update = table.java.updateSchema().addColumn("t", types.TimeType.get())
    update.addColumn("n", types.TimestampNanoType.withZone()).addColumn("u", types.UUIDType.get()).commit()
    path = f"{table.java.location()}/data/odd.parquet"
    columns = subject.table().layout().columns
    rows_in = {
        "id": [1, 2],
        "t": [3_723_000_004, None],
        "n": [1_234_567_890_123_456_789, None],
        "u": [b"\x01" * 16, None],
    }
    arrays = [pa.array(rows_in[f.name]).cast(f.type) if f.name != "u" else _uuids(rows_in["u"], f) for f in columns]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=columns), path)
    _append(subject, path)
    table = subject.table()
    found = changes_of(session, table, table.snapshot_id or 0, RowKey(KeyKind.ROW_ID)).orderBy("row_id").collect()
    uuid = "01010101-0101-0101-0101-010101010101"
    assert [tuple(row.after) for row in found] == [
        (1, 3_723_000_004, 1_234_567_890_123_456_789, uuid),
        (2, None, None, None),
    ]


def _uuids(values: list[Any], field: pa.Field) -> pa.Array:
    storage = pa.array(values, pa.binary(16))
    return pa.ExtensionArray.from_storage(field.type, storage) if isinstance(field.type, pa.UuidType) else storage


def _append(subject: Subject, path: str) -> None:
    java = subject.table().java
    iceberg: Any = subject.spark._jvm.org.apache.iceberg
    file = java.io().newInputFile(path)
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(java))
    built = (
        iceberg.DataFiles.builder(java.spec()).withInputFile(file).withFormat("PARQUET").withMetrics(metrics).build()
    )
    java.newAppend().appendFile(built).commit()


@pytest.mark.thorough
def test_files_without_partners_are_not_shuffled(session: SparkSession) -> None:
    """Files whose identifiers no file of the other side can hold are read as deletes or creates as they are."""
    subject = filled(session, V2_COW_PARTS, "(1,'a','x'), (2,'a','y'), (11,'b','x'), (12,'b','y')")
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        found = _one(subject, "INSERT OVERWRITE {t} VALUES (5,'a','x'), (11,'b','x'), (13,'b','z')")
    finally:
        session.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert found == [
        ("c", None, (13, "b", "z")),
        ("c", None, (5, "a", "x")),
        ("d", (1, "a", "x"), None),
        ("d", (12, "b", "y"), None),
        ("d", (2, "a", "y"), None),
    ]
    table = subject.table()
    snapshot_id = table.snapshot_id or 0
    reader = TableReader(session, table, load_snapshot_schema(session, table, snapshot_id))
    keys = RowKey(KeyKind.IDENTIFIERS, ("id",))
    apart, rest = SnapshotDiff(reader, read_file_changes(session, table, snapshot_id), keys, snapshot_id)._split_files()
    assert [(len(part.removed), len(part.added)) for part in apart] == [(1, 0), (0, 1)]
    assert rest is not None and (len(rest.files.removed), len(rest.files.added)) == (1, 1)
