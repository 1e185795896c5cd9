"""A table as it was at batch start -> its rows as a Spark frame, to be joined with keys or changes of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import attrs
import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import FILE_COLUMN, POSITION_COLUMN, TableReader, column_name
from connector.iceberg.types.nested_columns import Path
from connector.iceberg.types.schema_json import VARIANT_TYPE
from connector.iceberg.types.spark_types import from_spark, spark_type
from connector.sink.job.shuffle import unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan

ColumnNames = Mapping[str, str]


@attrs.frozen(eq=False)
class TableRows:
    """The rows of a table at batch start.

    `live` has them all; `struck` those rows of its files that deletes hit: what keys had before they went. Both have
    the columns of `names` (the table's column -> the frame's) and of `place`: the row's data file and position in it.
    A column that Spark cannot read is not in `names`; it is read at that place.
    """

    live: DataFrame
    struck: DataFrame
    names: ColumnNames
    place: tuple[str, str] = (FILE_COLUMN, POSITION_COLUMN)


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
    struck = reader.read_deleted_rows(deleted_in) if deleted_in else reader.nothing()
    return TableRows(reader.read_live_rows(tasks), struck, names)


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


def column_aliases(side: str, count: int) -> list[str]:
    """Name the columns of one side of a join by their place: `mapInArrow` takes a dot in a name for a path."""
    return [f"_{side}_{place}" for place in range(count)]


def spark_schema(types: Sequence[pa.DataType], names: Sequence[str]) -> StructType:
    """Give Spark's schema of columns that are carried through it."""
    fields = [pa.field(name, spark_type(kind)) for name, kind in zip(names, types, strict=True)]
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


def unpack_changes(
    parcelled: DataFrame, table: TablePlan, made: StructType, rows: Callable[[ChangeBatch], list[pa.Array]]
) -> DataFrame:
    """Return the parts in parcels as a frame of the schema `made`."""
    layout = table.layout.rows

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                part = unpack(payload.as_buffer(), layout)
                yield pa.RecordBatch.from_arrays(rows(part), made.names)

    return parcelled.select("payload").mapInArrow(task, made)


def key_column(names: ColumnNames, path: Path) -> Column:
    """Give a key of a frame's rows; `names` are those of its columns."""
    return reduce(lambda column, part: column[part], path[1:], F.col(names[path[0]]))


def key_condition(names: ColumnNames, layout: TableLayout, under: Sequence[str]) -> Column:
    """Say that a row of the table, whose columns are called `names`, has these key columns."""
    condition = F.lit(True)
    for path, name in zip(layout.key_paths, under, strict=True):
        condition = condition & (F.col(name) == key_column(names, path))
    return condition


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
