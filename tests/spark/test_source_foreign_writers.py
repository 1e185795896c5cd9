"""Commits as other writers make them -> changes that lead from each snapshot's rows to the next one's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import IntegerType
from pyspark.sql import SparkSession

from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.write.partitioning import Partition
from connector.iceberg.write.rolling_file import FileKind, RollingFile
from connector.iceberg.write.table_writer import TableWriter
from connector.source.changes.rewrites import file_diff
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.snapshots.next_step import Fail, SnapshotMode, SnapshotOffset, TableHead, decide_next_step
from connector.source.snapshots.table_history import read_history
from tests.harness.tiers import tiered
from tests.histories.source_tables import COW, MOR, Event, Kind, Row, Subject, use_catalog
from tests.runs.processes import catalog as catalog_in

pytestmark = pytest.mark.spark
BY_ID = RowKey(KeyKind.CONFIGURED, ("id",))
IN_A, IN_B, IN_NULL = Partition("p=a", ("a",)), Partition("p=b", ("b",)), Partition("p=null", (None,))


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("writers"))
    return spark


@pytest.fixture(scope="module")
def pyiceberg(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SqlCatalog:
    """A catalog `pyice` that PyIceberg and Spark share."""
    home = tmp_path_factory.mktemp("pyice")
    (home / "warehouse").mkdir()
    conf = {f".{key}": value for key, value in catalog_in(home).items()}
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", **conf, ".cache-enabled": "false"}.items():
        session.conf.set(f"spark.sql.catalog.pyice{key}", value)
    session.sql("CREATE NAMESPACE IF NOT EXISTS pyice.db")
    return SqlCatalog("pyice", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=f"file://{home / 'warehouse'}")


def _operations(found: Sequence[Sequence[Event]]) -> list[str]:
    """The operations of each snapshot, sorted."""
    return ["".join(sorted(event[0] for event in events)) for events in found]


_COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("p", pa.string()),
        pa.field("v", pa.string()),
        pa.field("d", pa.float64()),
    ]
)
PYICEBERG = [(identifiers, walked) for identifiers in (True, False) for walked in (True, False)]


@pytest.mark.parametrize(("identifiers", "walked"), tiered(PYICEBERG, [(True, False)]))
def test_writes_of_pyiceberg(
    session: SparkSession,
    pyiceberg: SqlCatalog,
    identifiers: bool,
    walked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Appends, deletes, overwrites and upserts of PyIceberg are followed, before and after a change of columns."""
    monkeypatch.setattr(file_diff, "MIN_REWRITTEN_ROWS", 0 if walked else 1 << 60)
    kind = Kind(2, COW, partitioned=True, identifiers=identifiers)
    subject = Subject(session, kind, "id bigint NOT NULL, p string, v string, d double", catalog="pyice")
    table = pyiceberg.load_table(subject.short)

    def rows(*values: tuple[Any, ...]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(_COLUMNS.names, one, strict=True)) for one in values], _COLUMNS)

    def after(write: Callable[[], Any]) -> list[str]:
        write()
        table.refresh()
        return _operations(subject.follow())

    first = rows((1, "a", "x", 0.0), (2, "a", "y", float("nan")), (3, "b", "z", -0.0), (4, None, "n", None))
    assert after(lambda: table.append(first)) == ["cccc"]
    assert after(lambda: table.append(rows((5, "a", "x", 0.0), (6, "b", "y", 1.0)))) == ["cc"]
    assert after(lambda: table.delete("id = 1")) == ["d"]
    assert after(lambda: table.delete("p is null")) == ["d"]
    other = rows((2, "a", "y2", 0.0), (7, "c", "q", 2.0))
    assert after(lambda: table.overwrite(other, overwrite_filter="id = 2 or p = 'b'"))[-1] == "cc"
    more = rows((2, "a", "y3", 0.0), (5, "a", "x", 0.0), (8, "d", "w", 3.0))
    assert after(lambda: table.upsert(more, join_cols=["id"]))
    assert after(lambda: table.dynamic_partition_overwrite(rows((9, "a", "n", 3.0))))
    with table.update_schema() as update:
        update.rename_column("v", "w")
        update.add_column("x", IntegerType())
    table.refresh()
    subject.retyped()
    assert after(lambda: table.delete("id = 8")) == ["d"]
    assert after(lambda: table.overwrite(table.scan().to_arrow())) == ["dd", "cc"]
    assert after(lambda: subject.sql("UPDATE {t} SET w = 's' WHERE id = 9")) == ["u" if identifiers else "cd"]
    assert after(lambda: table.delete("true")) == ["dd"]


def _decide(subject: Subject) -> Any:
    table = subject.table()
    history = SnapshotHistory(subject.spark, table)
    head = TableHead(table.uuid, history.newest())
    return decide_next_step(subject.name, subject.position, SnapshotMode.INITIAL, head, lambda: read_history(history))


REFS = [(version, mode) for version in (2, 3) for mode in (COW, MOR)]


@pytest.mark.parametrize(("version", "mode"), tiered(REFS, [(3, MOR)]))
def test_commits_that_come_from_elsewhere(session: SparkSession, version: int, mode: str) -> None:
    """A branch is published when the table is moved to it, and a staged commit when it is picked; a table that is
    replaced stops."""
    subject = Subject(session, Kind(version, mode, partitioned=False, identifiers=True), "id bigint NOT NULL, v string")
    subject.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    subject.follow()
    table = subject.table()
    table.java.manageSnapshots().createBranch("b", table.snapshot_id).commit()
    subject.sql("UPDATE {t}.branch_b SET v = 'B' WHERE id = 2")
    subject.sql("DELETE FROM {t}.branch_b WHERE id = 3")
    subject.sql("INSERT INTO {t}.branch_b VALUES (4, 'd')")
    assert subject.follow() == []
    subject.call("fast_forward", ", branch => 'main', to => 'b'")
    assert _operations(subject.follow()) == ["u", "d", "c"]
    subject.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    session.conf.set("spark.wap.id", "staged")
    subject.sql("INSERT INTO {t} VALUES (5, 'e')")
    session.conf.unset("spark.wap.id")
    assert subject.follow() == []
    picked = session.sql(f"SELECT snapshot_id FROM {subject.name}.snapshots WHERE summary['wap.id'] = 'staged'")
    subject.sql("INSERT INTO {t} VALUES (6, 'f')")
    subject.call("cherrypick_snapshot", f", snapshot_id => {picked.collect()[0][0]}")
    assert [event[2] for events in subject.follow() for event in events] == [(6, "f"), (5, "e")]
    properties = f"TBLPROPERTIES ('format-version'='{version}')"
    subject.sql(f"REPLACE TABLE {{t}} USING iceberg {properties} AS SELECT 9L id, 'r' v")
    decision = _decide(subject)
    assert isinstance(decision, Fail) and "changes cannot continue" in decision.reason


@pytest.mark.thorough
@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_began_as_v1(session: SparkSession, version: int) -> None:
    """Files from before an upgrade, under specs of then, are followed when they are deleted in, moved and rewritten."""
    subject = Subject(
        session, Kind(2, COW, partitioned=True, identifiers=False), "id bigint NOT NULL, p string, v string"
    )
    subject.sql("DROP TABLE {t}")
    subject.sql(
        "CREATE TABLE {t} (id bigint NOT NULL, p string, v string) USING iceberg PARTITIONED BY (p) "
        "TBLPROPERTIES ('format-version'='1')"
    )
    subject.sql("INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'a', 'z')")
    subject.table().java.updateSpec().removeField("p").commit()
    subject.sql("INSERT INTO {t} VALUES (6, 'a', 'x'), (7, 'b', 'y')")
    subject.sql(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.update.mode'='merge-on-read')"
    )
    table = subject.table()
    subject.copy = subject.rows(table.snapshot_id or 0)
    subject.position = SnapshotOffset(table.uuid, table.snapshot_id)
    subject.sql("UPDATE {t} SET v = 'q' WHERE id IN (1, 6)")
    subject.sql("DELETE FROM {t} WHERE id = 2")
    subject.sql("MERGE INTO {t} t USING (SELECT 3L id) s ON s.id = t.id WHEN MATCHED THEN DELETE")
    subject.sql("UPDATE {t} SET p = 'zz'")
    assert _operations(subject.follow(BY_ID)) == ["uu", "d", "d", "uuu"]


@pytest.mark.thorough
def test_columns_of_unknown_type(session: SparkSession) -> None:
    """A column of Iceberg's type `unknown` is null in every row, and changes of the others are told."""
    subject = Subject(session, Kind(3, COW, partitioned=False, identifiers=True), "id bigint NOT NULL, v string")
    types: Any = session._jvm.org.apache.iceberg.types.Types
    subject.table().java.updateSchema().addColumn("u", types.UnknownType.get()).commit()
    subject.sql("INSERT INTO {t} (id, v) VALUES (1, 'x')")
    subject.sql("UPDATE {t} SET v = 'y'")
    (event,) = subject.events(subject.table().snapshot_id or 0)
    assert event[:3] == ("u", (1, "x", None), (1, "y", None))


def _delete_as_flink(
    subject: Subject, columns: tuple[str, ...], keys: Sequence[tuple[Any, ...]], partition: Partition, *rows: Row
) -> None:
    """Commit equality deletes of one partition by some columns, and rows of the same snapshot."""
    table = subject.table()
    layout = attrs.evolve(table.layout(), id_columns=columns)
    kind = attrs.evolve(FileKind.equality_deletes(layout), spec_id=layout.spec.spec_id)
    file = RollingFile(layout, kind, partition, "flink")
    named = [dict(zip(columns, key, strict=True)) for key in keys]
    file.write(pa.RecordBatch.from_pylist(named, pa.schema(layout.key_fields)))
    delta = table.java.newRowDelta()
    for deletes in table.content_files(list(file.close())):
        delta.addDeletes(deletes)
    if rows:
        writer = TableWriter(table.layout(), "flink")
        writer.write_rows(pa.RecordBatch.from_pylist(list(rows), table.layout().columns))
        for added in table.content_files(list(writer.close())):
            delta.addRows(added)
    delta.commit()


FLINK = [(version, identifiers) for version in (2, 3) for identifiers in (True, False)]


@pytest.mark.parametrize(("version", "identifiers"), tiered(FLINK, [(2, True)]))
def test_equality_deletes_by_other_columns_than_the_key(session: SparkSession, version: int, identifiers: bool) -> None:
    """Deletes of one partition by other columns than the key take their rows once, nulls too, beside Spark's own."""
    kind = Kind(version, MOR, partitioned=True, identifiers=identifiers)
    subject = Subject(session, kind, "id bigint NOT NULL, p string, v string")
    subject.sql("INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'a', 'y'), (3, 'b', 'x'), (4, 'b', null), (5, null, 'x')")
    subject.sql("INSERT INTO {t} VALUES (6, 'a', 'x'), (7, 'b', 'y')")
    subject.follow()
    _delete_as_flink(subject, ("id", "p"), [(1, "a"), (3, "a")], IN_A, {"id": 1, "p": "a", "v": "n"})
    _delete_as_flink(subject, ("v",), [("x",)], IN_A, {"id": 6, "p": "b", "v": "x"})
    _delete_as_flink(subject, ("v",), [(None,), ("x",)], IN_B)
    assert _operations(subject.follow()) == (["u", "u", "ddd"] if identifiers else ["cd", "cd", "ddd"])
    subject.sql("UPDATE {t} SET v = 'w' WHERE id = 2")
    again = [{"id": 2, "p": "a", "v": "again"}, {"id": 5, "p": None, "v": "x"}]
    _delete_as_flink(subject, ("id",), [(2,), (5,)], IN_NULL, again[1])
    _delete_as_flink(subject, ("id", "v"), [(1, "n")], IN_A, {"id": 1, "p": "a", "v": "n"})
    subject.sql("DELETE FROM {t} WHERE id = 7")
    subject.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    subject.sql("DELETE FROM {t}")
    assert _operations(subject.follow())[-1] == "ddd"


@pytest.mark.thorough
def test_several_delete_files_of_one_data_file(session: SparkSession) -> None:
    """Positions for a whole partition, equality deletes, their merge, and vectors after an upgrade take a row once."""
    kind = Kind(2, MOR, partitioned=True, identifiers=False)
    subject = Subject(
        session, kind, "id bigint NOT NULL, p string, v string", ", 'write.delete.granularity'='partition'"
    )
    for first in (0, 10):
        subject.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, 'a', 'v' FROM range({first}, {first + 10})")
    subject.follow()
    for number in (1, 11, 2):
        subject.sql(f"DELETE FROM {{t}} WHERE id = {number}")
    _delete_as_flink(subject, ("id",), [(3,), (1,), (13,)], IN_A)
    subject.call("rewrite_position_delete_files", ", options => map('rewrite-all', 'true')")
    subject.sql("DELETE FROM {t} WHERE id IN (5, 6)")
    done = [found for found in _operations(subject.follow()) if found]
    assert done == ["d", "d", "d", "dd", "dd"]
    subject.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    subject.sql("DELETE FROM {t} WHERE id IN (8, 15)")
    subject.sql("UPDATE {t} SET v = 'n' WHERE id IN (0, 17)")
    assert _operations(subject.follow(BY_ID)) == ["dd", "uu"]
