"""A table as it was at batch start -> its rows as a Spark frame, to be joined with keys or changes of the batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from connector.iceberg.catalog.table import Table
from connector.iceberg.read.all_columns import readable_schema
from connector.iceberg.read.frame_columns import column_name
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import TableReader
from connector.sink.destinations.join_columns import TableRows
from connector.sink.model.plan import TablePlan


def read_table_rows(spark: SparkSession, table: Table, plan: TablePlan, where: str | None = None) -> TableRows:
    """Return the table's rows at the plan's snapshot, under its present columns; nothing is read yet.

    `where` leaves out files that have no rows of interest (`keys.key_ranges`).

    Raises:
        FatalError, RetriableError: its metadata cannot be read.
    """
    schema = readable_schema(plan.layout.schema_json)
    tasks = [] if plan.base is None else plan_files(spark, table, plan.base, where)
    reader = TableReader(spark, table, schema)
    names = {name: column_name(place) for place, name in enumerate(schema.names)}
    deleted_in = [task for task in tasks if task.deletes]
    deleted = reader.read_deleted_rows(deleted_in) if deleted_in else reader.nothing()
    return TableRows(reader.read_live_rows(tasks), deleted, names)
