"""Tables whose columns changed between files: rewritten files, equality deletes by columns of then, default values."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.iceberg.write.table_writer import TableWriter
from connector.source.changes.rewrites import file_diff
from tests.harness.tiers import tiered
from tests.histories.source_tables import COW, MOR, Kind, Subject, upsert, use_catalog

pytestmark = pytest.mark.spark
KEYED = Kind(2, COW, partitioned=True, identifiers=True)
COLUMNS = "id int NOT NULL, p string, v string, n int, f float, d decimal(8,2), s struct<a: int, b: string>"
FLAT = COLUMNS.rpartition(", s ")[0]
EVOLUTIONS: dict[str, tuple[str, ...]] = {
    "add": ("ADD COLUMN x string",),
    "add first": ("ADD COLUMN x bigint FIRST",),
    "drop": ("DROP COLUMN v",),
    "rename": ("RENAME COLUMN v TO w",),
    "reorder": ("ALTER COLUMN n AFTER id",),
    "swap names": ("RENAME COLUMN v TO w", "RENAME COLUMN p TO v", "RENAME COLUMN w TO old"),
    "drop and add": ("DROP COLUMN n", "ADD COLUMN n int"),
    "promote": ("ALTER COLUMN n TYPE bigint", "ALTER COLUMN f TYPE double", "ALTER COLUMN d TYPE decimal(12,2)"),
    "promote the key": ("ALTER COLUMN id TYPE bigint",),
}
NESTED: dict[str, tuple[str, ...]] = {
    "add a field": ("ADD COLUMN s.c int",),
    "drop a field": ("DROP COLUMN s.b",),
    "rename and promote fields": ("RENAME COLUMN s.b TO e", "ALTER COLUMN s.a TYPE bigint"),
    "add beside": ("ADD COLUMN x map<string, int>",),
}


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("evolved"))
    return spark


def _insert(subject: Subject, first: int, names: tuple[str, ...] = ()) -> None:
    """Forty rows in two partitions; only the columns that the first schema had are given."""
    made = {
        "id": "id",
        "p": "if(id % 2 = 0, 'a', 'b')",
        "v": "concat('v', id)",
        "n": "id",
        "f": "id / 2",
        "d": "id / 4",
    }
    if "s" in subject.spark.table(subject.name).columns:
        made["s"] = "named_struct('a', id, 'b', concat('b', id))"
    made = {name: text for name, text in made.items() if not names or name in names}
    subject.sql(
        f"INSERT INTO {{t}} ({', '.join(made)}) SELECT /*+ COALESCE(1) */ {', '.join(made.values())} "
        f"FROM (SELECT CAST(id AS int) id FROM range({first}, {first + 40}))"
    )


CASES = [*((name, True) for name in EVOLUTIONS), ("add", False), ("promote the key", False)]
FEW = [("swap names", True)]


@pytest.mark.parametrize(
    ("change", "walked"), tiered(CASES, FEW, lambda case: f"{case[0]}-{'walked' if case[1] else 'by digests'}")
)
def test_files_of_several_schemas_are_rewritten(
    session: SparkSession, change: str, walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewrite of files from before and after a change of columns gives the rows that changed, however many there
    are."""
    monkeypatch.setattr(file_diff, "MIN_REWRITTEN_ROWS", 0 if walked else 1 << 60)
    _rewrite_after(Subject(session, KEYED, FLAT), EVOLUTIONS[change])


@pytest.mark.parametrize("change", tiered(NESTED, []))
def test_fields_of_structs_change(session: SparkSession, change: str) -> None:
    """The same for what is nested."""
    _rewrite_after(Subject(session, KEYED, COLUMNS), NESTED[change])


def _rewrite_after(subject: Subject, change: tuple[str, ...]) -> None:
    _insert(subject, 0)
    subject.follow()
    for statement in change:
        subject.sql(f"ALTER TABLE {{t}} {statement}")
    subject.retyped()
    for _ in range(2):
        subject.sql("UPDATE {t} SET d = d + 1 WHERE id % 10 = 3")
        assert [op for op, *_ in subject.follow()[0]] == ["u"] * 4
    # A struct that changed is left out.
    there = set(subject.spark.table(subject.name).columns) - {"s"}
    _insert(subject, 40, tuple(there))
    subject.sql("ALTER TABLE {t} ADD COLUMN y int")
    subject.follow()
    subject.retyped()
    subject.sql("DELETE FROM {t} WHERE id % 20 IN (3, 4)")
    assert [op for op, *_ in subject.follow()[0]] == ["d"] * 8


def test_a_partition_column_goes(session: SparkSession) -> None:
    """Files under specs whose column is gone since are rewritten, and are removed, beside files of later specs."""
    subject = Subject(session, KEYED, FLAT)
    _insert(subject, 0)
    subject.follow()
    update = subject.table().java.updateSpec()
    expressions: Any = session._jvm.org.apache.iceberg.expressions.Expressions
    update.removeField("p").addField(expressions.bucket("id", 2)).commit()
    _insert(subject, 40)
    subject.follow()
    subject.sql("ALTER TABLE {t} DROP COLUMN p")
    subject.retyped()
    subject.sql("UPDATE {t} SET v = 'n' WHERE id % 10 = 3")
    assert [op for op, *_ in subject.follow()[0]] == ["u"] * 8
    subject.sql("DELETE FROM {t} WHERE id % 2 = 0")
    assert [op for op, *_ in subject.follow()[0]] == ["d"] * 40


THEN: dict[str, tuple[str, ...]] = {
    "drop": ("DROP COLUMN v",),
    "rename": ("RENAME COLUMN v TO w",),
    "drop and add": ("DROP COLUMN n", "ADD COLUMN n string"),
    "promote": ("ALTER COLUMN n TYPE bigint", "ALTER COLUMN d TYPE decimal(12,2)"),
    "promote and drop": ("ALTER COLUMN n TYPE bigint", "DROP COLUMN n"),
}


TABLES = {"flat": (3, FLAT), "nested": (2, COLUMNS)}
SOME = [("drop and add", "nested"), ("promote and drop", "flat")]


@pytest.mark.parametrize(("change", "table"), tiered(product(THEN, TABLES), SOME, "-".join))
def test_equality_deletes_by_columns_of_then(session: SparkSession, change: str, table: str) -> None:
    """Equality deletes by columns that were dropped, renamed or promoted since still take their rows, for changes,
    full reads and look-ups by key columns alone, also when the metadata file that they were planned by is gone."""
    # Spark's own reads cannot tell what is right here: they fail where a name was taken again, and executors keep keys
    # of equality deletes as the types were at the first read.
    version, columns = TABLES[table]
    subject = Subject(session, Kind(version, MOR, partitioned=False, identifiers=True), columns)
    _insert(subject, 0)
    _delete_by(subject, ("v", "n", "d"), [{"v": f"v{n}", "n": n, "d": Decimal(n) / 4} for n in (3, 5)])
    assert [op for op, *_ in subject.events(subject.table().snapshot_id or 0)] == ["d", "d"]
    for statement in THEN[change]:
        subject.sql(f"ALTER TABLE {{t}} {statement}")
    _delete_by(subject, ("id",), [{"id": n} for n in (5, 6, 7)])
    now = subject.table()
    gone = subject.events(now.snapshot_id or 0)
    assert sorted((op, before[0]) for op, before, *_ in gone) == [("d", 6), ("d", 7)]
    document = SnapshotSchema(now.layout().schema_json).document
    for names in (["id"], [field["name"] for field in document["fields"]]):
        fields = [field for field in document["fields"] if field["name"] in names]
        reader = TableReader(session, now, SnapshotSchema(orjson.dumps({**document, "fields": fields}).decode()))
        live = reader.read_live_rows(plan_files(session, now, now.snapshot_id or 0))
        for name in Path(str(now.java.location()).removeprefix("file:")).glob("metadata/*.metadata.json"):
            name.unlink()
        assert {row.c0 for row in live.collect()} == set(range(40)) - {3, 5, 6, 7}
        assert live.count() == 36
    release_reads(session, now)


def _delete_by(subject: Subject, columns: tuple[str, ...], keys: list[dict[str, Any]]) -> None:
    """Commit an equality delete by some columns."""
    table = subject.table()
    layout = attrs.evolve(table.layout(), id_columns=columns)
    writer = TableWriter(layout, "test")
    writer.write_equality_deletes(
        pa.RecordBatch.from_pylist(keys, pa.schema([layout.columns.field(name) for name in layout.keys]))
    )
    delta = table.java.newRowDelta()
    for file in table.content_files(list(writer.close())):
        delta.addDeletes(file)
    delta.commit()


DEFAULTS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "string": (lambda t: t.StringType.get(), "then", "then"),
    "decimal": (lambda t: t.DecimalType.of(9, 2), "14.20", Decimal("14.20")),
    "time": (lambda t: t.TimeType.get(), "12:34:56.000007", 45_296_000_007),
    "nanoseconds": (lambda t: t.TimestampNanoType.withoutZone(), "1970-01-01T00:00:01.000000007", 1_000_000_007),
    "before the epoch": (lambda t: t.TimestampNanoType.withZone(), "1969-12-31T23:59:59.999999999+00:00", -1),
}


@pytest.mark.parametrize("case", tiered(DEFAULTS, ["before the epoch"]))
def test_defaults_of_added_columns(session: SparkSession, case: str) -> None:
    """A column that was added with a default has it in the rows from before, also where Spark lacks its type."""
    kind, text, value = DEFAULTS[case]
    subject = Subject(session, Kind(3, COW, partitioned=False, identifiers=True), "id bigint NOT NULL, v string")
    subject.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'x'), (2, 'y')")
    iceberg: Any = session._jvm.org.apache.iceberg
    made = kind(iceberg.types.Types)
    literal = iceberg.expressions.Literal.of(text).to(made)
    subject.table().java.updateSchema().addColumn("x", made, literal).commit()
    upsert(subject.table(), [{"id": 2, "v": "z", "x": None}])
    (event,) = subject.events(subject.table().snapshot_id or 0)
    assert event[:3] == ("u", (2, "y", value), (2, "z", None))
    table = subject.table()
    java = table.java.newOverwrite()
    for task in plan_files(session, table, table.snapshot_id or 0):
        java.deleteFile(task.java().file())
    layout = table.layout()
    writer = TableWriter(layout, "test")
    writer.write_rows(pa.RecordBatch.from_pylist([{"id": 1, "v": "n", "x": None}], layout.columns))
    for file in table.content_files(list(writer.close())):
        java.addFile(file)
    java.commit()
    events = sorted(subject.events(subject.table().snapshot_id or 0), key=lambda event: event[0])
    assert [event[:3] for event in events] == [("d", (2, "z", None), None), ("u", (1, "x", value), (1, "n", None))]
