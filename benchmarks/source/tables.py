"""rows -> tables: one set of data files that all cases share, and the one commit that updates 1 % of the rows.

The rows are written once, into the base table. Every other table gets its data files by an append of metadata, so all
cases read the same bytes, and a large table is a small one with more files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.generate import BASE_TS_NS, STATUSES, VALUE_COLUMNS
from benchmarks.session import CATALOG, merge_properties, qualified, sql_type
from benchmarks.source.plan import (
    BASE,
    FILES,
    NAMESPACE,
    UPDATED_EACH,
    UPDATED_REST,
    SourceCase,
    table_name,
)
from connector.iceberg.catalog.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATUSES = ", ".join(f"'{status}'" for status in STATUSES)
# Hashes of the id: values without a period, so that files have the size of real ones (about 45 bytes a row).
_EXPRESSIONS = {
    "id": "id",
    "quantity": "pmod(xxhash64(id, 1), 50) + 1",
    "price": "pmod(xxhash64(id, 2), 1000000) / 100.0D",
    "discount": "pmod(xxhash64(id, 3), 20) / 20.0D",
    "status": f"array({_STATUSES})[int(pmod(xxhash64(id, 4), {len(STATUSES)}))]",
    "note": "concat('order ', lower(hex(xxhash64(id, 5))))",
    "active": "pmod(xxhash64(id, 6), 2) = 0",
    "updated_at": f"{BASE_TS_NS // 1_000_000}L - pmod(xxhash64(id, 7), 100000000)",
}


def load(spark: SparkSession, table: str, catalog: str = CATALOG) -> Table:
    """The table `namespace.table`, loaded now."""
    loader: Any = spark._jvm.org.apache.iceberg.spark.Spark3Util
    java = loader.loadIcebergTable(spark._jsparkSession, f"{catalog}.{table}")
    return Table(spark, table, java, {})


def create(spark: SparkSession, table: str, version: int, properties: dict[str, str]) -> None:
    """Create an empty table of 8 columns with `id` as identifier."""
    columns = ", ".join(f"`{name}` {sql_type(name)}{' NOT NULL' if name == 'id' else ''}" for name in VALUE_COLUMNS)
    options = {"format-version": str(version), "write.distribution-mode": "none"} | properties
    listed = ", ".join(f"'{name}'='{value}'" for name, value in options.items())
    spark.sql(f"CREATE TABLE {qualified(table)} ({columns}) USING iceberg TBLPROPERTIES ({listed})")
    spark.sql(f"ALTER TABLE {qualified(table)} SET IDENTIFIER FIELDS id")


def make_base(spark: SparkSession, rows: int, times: int) -> None:
    """Write `times` x `rows` rows, each `rows` of them into 16 files of equal size."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{CATALOG}`.{NAMESPACE}")
    create(spark, table_name(BASE), 2, {})
    values = [f"CAST({_EXPRESSIONS[name]} AS {sql_type(name)}) AS `{name}`" for name in VALUE_COLUMNS]
    rows_made = spark.range(0, rows * times, 1, FILES * times).selectExpr(*values)
    rows_made.writeTo(qualified(table_name(BASE))).append()


def share(spark: SparkSession, table: str, version: int, rows: int | None, properties: dict[str, str]) -> None:
    """Create a table with the base's files: those whose ids are below `rows`, or all of them (None)."""
    create(spark, table, version, properties)
    scan = load(spark, table_name(BASE)).java.newScan()
    if rows is not None:
        scan = scan.filter(spark._jvm.org.apache.iceberg.expressions.Expressions.lessThan("id", rows))
    append = load(spark, table).java.newAppend()
    files = scan.planFiles()
    for task in spark._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists.newArrayList(files):
        append.appendFile(task.file())
    files.close()
    append.commit()


def make(spark: SparkSession, case: SourceCase, rows: int) -> tuple[Table, int]:
    """Make a case's table and update 1 % of its first `rows` rows; the table and the snapshot of the update."""
    share(spark, case.table, case.version, None if case.large else rows, merge_properties(case.mode))
    spark.sql(
        f"UPDATE {qualified(case.table)} SET quantity = quantity + 1, status = 'returned', updated_at = updated_at + 1 "
        f"WHERE {updated(rows)}"
    )
    table = load(spark, case.table)
    assert table.snapshot_id is not None
    return table, table.snapshot_id


def updated(rows: int) -> str:
    """The condition that the updated rows meet."""
    return f"id % {UPDATED_EACH} = {UPDATED_REST} AND id < {rows}"


def expected(spark: SparkSession, case: SourceCase, table: Table, snapshot_id: int, rows: int) -> DataFrame:
    """What the update did, as Spark reads both snapshots: `change` and the table's columns."""
    parent = int(table.java.snapshot(snapshot_id).parentId())
    sides = {"UPDATE_BEFORE": parent, "UPDATE_AFTER": snapshot_id}
    parts = [
        f"SELECT '{change}' AS change, * FROM {qualified(case.table)} VERSION AS OF {version} WHERE {updated(rows)}"
        for change, version in sides.items()
    ]
    return spark.sql(" UNION ALL ".join(parts))
