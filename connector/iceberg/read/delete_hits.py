"""Data files + equality deletes, whatever their sequence numbers -> which files have live rows that these would delete.

A Spark job of Iceberg's own readers over the deletes' key columns of these files; only counts reach the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import jvm, map_java_errors
from connector.iceberg.read.frame_columns import FILE_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask, JavaFile, add_deletes, plan_files
from connector.iceberg.read.table_reader import TableReader, release_reads


def find_hit_files(table: Table, snapshot_id: int, deletes: Mapping[str, Sequence[JavaFile]]) -> list[FileScanTask]:
    """Return the tasks of those data files that have live rows which their deletes hit.

    Of a file that the table lists more than once all are returned where it has such rows in one of them.

    Args:
        table: the table.
        snapshot_id: which deletes apply already, and which files there are; others are left out.
        deletes: data files by path, and the equality deletes to try on each.

    Raises:
        FatalError, RetriableError: metadata or files cannot be read.
    """
    tasks = [task for task in plan_files(table.spark, table, snapshot_id) if task.path in deletes]
    deleted = [add_deletes(table.spark, task, deletes[task.path]) for task in tasks]
    ids = frozenset[int]().union(*(task.equality_ids for task in deleted))
    reader = TableReader(table.spark, table, _key_schema(table, ids))
    with map_java_errors(f"reading keys of {table.name}"):
        try:
            before, after = (_count_rows(reader, some) for some in (tasks, deleted))
        finally:
            release_reads(table.spark, table)
    return [task for task in tasks if after.get(task.path, 0) < before.get(task.path, 0)]


def _count_rows(reader: TableReader, tasks: Sequence[FileScanTask]) -> dict[str, int]:
    counted = reader.read_live_rows(tasks).groupBy(FILE_COLUMN).agg(F.count("*").alias("rows")).collect()
    return {row[FILE_COLUMN]: row["rows"] for row in counted}


def _key_schema(table: Table, ids: frozenset[int]) -> SnapshotSchema:
    """Return the part of the table's schema that the deletes go by; a column that is gone since the reader adds."""
    document = orjson.loads(jvm(table.spark).org.apache.iceberg.SchemaParser.toJson(table.java.schema()))
    fields = document["fields"]
    kept = [field for field in fields if field["id"] in ids] or [f for f in fields if isinstance(f["type"], str)][:1]
    return SnapshotSchema(orjson.dumps({**document, "fields": kept, "identifier-field-ids": []}).decode())
