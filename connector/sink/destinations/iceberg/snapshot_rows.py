"""A table as it was at batch start -> its rows as a Spark frame, to be joined with keys or changes of the batch."""

from __future__ import annotations

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.frame_columns import column_name
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.schemas.schema_json import VARIANT_TYPE
from connector.iceberg.types.values.spark_types import from_spark
from connector.sink.destinations.join_columns import ColumnNames, TableRows
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


def readable_schema(schema_json: str) -> SnapshotSchema:
    """Return the part of a schema that Spark can read and hand on to Python: no variants.

    Iceberg's reader of nested columns refuses a file with a time column, asked for or not; the one of primitive columns
    reads it as its number.
    """
    schema = SnapshotSchema(schema_json)
    document = schema.document
    kept = [field for field in document["fields"] if field["type"] != VARIANT_TYPE]
    if not schema.flat and '"time"' in schema_json:
        kept = [field for field in kept if isinstance(field["type"], str)]
    if len(kept) == len(document["fields"]):
        return schema
    return SnapshotSchema(orjson.dumps({**document, "fields": kept}).decode())


def read_all_columns(
    layout: TableLayout, batch: pa.RecordBatch, names: ColumnNames, place: tuple[str, str]
) -> dict[str, pa.Array]:
    """Return all columns of held rows in the table's types; those that Spark cannot read come from the data files."""
    absent = [field for field in layout.columns if field.name not in names]
    rest = read_rows_at(layout, batch.column(place[0]), batch.column(place[1]), absent) if absent else []
    others = dict(zip((field.name for field in absent), rest, strict=True))
    return {
        field.name: others[field.name]
        if field.name in others
        else from_spark(batch.column(names[field.name]), field.type)
        for field in layout.columns
    }
