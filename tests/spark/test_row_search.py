"""Tables that other engines change in every way -> each look-up finds the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import jvm
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import release_reads
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.settings.iceberg.catalog import CatalogSettings
from connector.sink.destinations.iceberg.row_search.base import FileRows, LookupScan
from connector.sink.destinations.iceberg.row_search.registry import ROW_SEARCHES
from connector.sink.destinations.iceberg.write_modes.row_lookup import collect_keys, emit_keys
from connector.sink.model import task_output
from connector.sink.model.driver_output import Written
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from tests.clients.lake import Lake
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COLUMNS = pa.schema(
    [("k", pa.int32()), ("s", pa.struct([("code", pa.string()), ("n", pa.int64())])), ("v", pa.int64())]
)
KEYS = 60


@pytest.fixture(scope="module")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A catalog whose tables others change."""
    properties = {"type": "hadoop", "warehouse": str(tmp_path_factory.mktemp("searched"))}
    Lake(spark, "searched", properties)
    return Catalog(spark, CatalogSettings("searched", properties, ("default",), {}))


def _rows(spark: SparkSession, name: str, count: int, seed: int) -> None:
    """Append rows as Spark writes them; keys come again."""
    key = f"pmod(xxhash64(id, {seed}), {KEYS})"
    row = f"{key} AS k, named_struct('code', concat('c', {key} % 7), 'n', id) AS s, id AS v"
    spark.sql(f"INSERT INTO {name} SELECT CAST(k AS INT), s, v FROM (SELECT {row} FROM range({count}))")


def _histories(spark: SparkSession, opened: Catalog, name: str, version: int) -> Iterator[str]:
    """Do to a table what others do; tells each step."""
    calls = f"CALL searched.system.{{}}(table => '{name.removeprefix('searched.')}'{{}})"
    for seed in range(3):
        _rows(spark, name, 40, seed)
    yield "appended"
    spark.sql(f"DELETE FROM {name} WHERE k % 5 = 1")
    spark.sql(f"UPDATE {name} SET v = v + 1000 WHERE k % 5 = 2")
    yield "merged on read"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='copy-on-write')")
    spark.sql(f"DELETE FROM {name} WHERE k % 7 = 3 AND v % 2 = 0")
    yield "copied on write"
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN k TYPE BIGINT")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO number")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN k INT FIRST")
    yield "widened, renamed, its name taken"
    table, terms = opened.load(name.rpartition(".")[2]), jvm(spark).org.apache.iceberg.expressions.Expressions
    assert table is not None
    table.java.updateSpec().addField(terms.bucket("number", 3)).commit()
    spark.sql(f"INSERT INTO {name} SELECT 1, number, s, v FROM {name} WHERE number % 4 = 0")
    yield "partitioned anew"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    spark.sql(f"DELETE FROM {name} WHERE number % 9 = 5")
    if version == 2:
        spark.sql(calls.format("rewrite_position_delete_files", ", options => map('rewrite-all', 'true')"))
    spark.sql(calls.format("rewrite_data_files", ", options => map('rewrite-all', 'true')"))
    spark.sql(f"DELETE FROM {name} WHERE number % 11 = 7")
    yield "maintained"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default'='avro')")
    spark.sql(f"INSERT INTO {name} SELECT 2, number, s, v FROM {name} WHERE number % 3 = 0")
    yield "written in another format"


def _keys_of(table: Table, keys: list[tuple[int, str]], ids: tuple[str, ...]) -> tuple[TablePlan, list[TaskOutput]]:
    layout = attrs.evolve(table.layout(), id_columns=ids)
    plan = TablePlan(0, layout, upsert=True, keep_deletes=False, base=table.snapshot_id, needs_row_lookup=True)
    numbers, codes = zip(*keys, strict=True)
    by_name = {"s.code": pa.array(codes)}
    columns = [by_name.get(f.name, pa.array(numbers)).cast(f.type) for f in layout.key_fields]
    return plan, list(emit_keys(columns, plan))


def _tell(files: Iterator[FileRows]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield task_output.to_batch([TaskOutput.of(Written(0, (file.path, tuple(file.positions))))])


def _find(spark: SparkSession, table: Table, plan: TablePlan, keys: list[TaskOutput], how: str) -> set[object]:
    """The data files and positions that a look-up finds."""
    lookup = collect_keys(spark, keys)
    where = lookup.ranges.filter(plan.layout.schema)
    assert plan.base is not None
    files = plan_files(spark, table, plan.base, where)
    outputs = lookup.outputs[0].where(F.col("kind") == OutputKind.KEYS)
    try:
        scan = LookupScan(spark, table, plan, files, outputs, lookup.ranges, 2, where)
        return set(ROW_SEARCHES[how].run(scan, _tell).written.get(0, ()))
    finally:
        release_reads(spark, table)


@pytest.mark.thorough
@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_every_look_up_finds_the_same_rows(spark: SparkSession, opened: Catalog, version: int) -> None:
    """Whatever others did to a table, and whatever its key is, an index finds the live rows that a join finds."""
    name, rng = f"v{version}", Random(version)
    properties = {
        "format-version": str(version),
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
    }
    opened.create(name, build_table_schema(COLUMNS, (), frozenset(), nanoseconds=False), (), properties)
    for turn, step in enumerate(_histories(spark, opened, f"searched.`default`.{name}", version)):
        table = opened.load(name)
        assert table is not None
        key = "number" if "number" in table.layout().columns.names else "k"
        wanted = [(number, f"c{number % 7 + number % 2}") for number in rng.sample(range(KEYS + 9), KEYS // 2)]
        for ids in ((key,), (key, "s.code")) if THOROUGH else [((key,), (key, "s.code"))[turn % 2]]:
            plan, keys = _keys_of(table, wanted, ids)
            joined, indexed = (_find(spark, table, plan, keys, how) for how in ("join", "key-index"))
            assert indexed == joined, (step, ids)
            assert joined, (step, ids)


def test_files_of_others_are_joined(spark: SparkSession, opened: Catalog, tmp_path: Path) -> None:
    """Rows of files that were added to the table as they were, without field ids, are found; a file that is gone is
    told.
    """
    opened.create("added", build_table_schema(COLUMNS, (), frozenset(), nanoseconds=False), (), {"format-version": "2"})
    rows = [{"k": number, "s": {"code": f"c{number}", "n": 1}, "v": 1} for number in range(9)]
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), tmp_path / "plain" / "part-0.parquet")
    spark.sql(
        f"CALL searched.system.add_files(table => 'default.added', source_table => '`parquet`.`{tmp_path}/plain`')"
    )
    _rows(spark, "searched.`default`.added", 40, 1)
    table = opened.load("added")
    assert table is not None
    plan, keys = _keys_of(table, [(number, f"c{number}") for number in range(0, 60, 4)], ("k",))
    joined, indexed = (_find(spark, table, plan, keys, how) for how in ("join", "key-index"))
    assert indexed == joined
    assert any("part-0" in path and positions == (0, 4, 8) for path, positions in indexed)  # type: ignore[misc,has-type]
    (tmp_path / "plain" / "part-0.parquet").unlink()
    with pytest.raises(Exception, match="part-0"):
        _find(spark, table, plan, keys, "key-index")
