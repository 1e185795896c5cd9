"""Rows of a table and changes of a batch -> columns that Spark can join them by, and back.

Look-ups give the columns of each side names by their place; keys within structs are read at their paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN
from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.values.spark_types import spark_type
from connector.sink.job.shuffle import unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan

ColumnNames = Mapping[str, str]


@attrs.frozen(eq=False)
class TableRows:
    """The rows of a table at batch start.

    `live_rows` has them all; `deleted_rows` those rows of its files that deletes hit: what keys had before they went.
    Both have the columns of `names` (the table's column -> the frame's) and of `place`: the row's data file and
    position in it. A column that Spark cannot read is not in `names`; it is read at that place.
    """

    live_rows: DataFrame
    deleted_rows: DataFrame
    names: ColumnNames
    place: tuple[str, str] = (FILE_COLUMN, POSITION_COLUMN)


def column_aliases(side: str, count: int) -> list[str]:
    """Name the columns of one side of a join by their place: `mapInArrow` takes a dot in a name for a path."""
    return [f"_{side}_{place}" for place in range(count)]


def spark_schema(types: Sequence[pa.DataType], names: Sequence[str]) -> StructType:
    """Return Spark's schema of columns that are carried through it."""
    fields = [pa.field(name, spark_type(kind)) for name, kind in zip(names, types, strict=True)]
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


def unpack_changes(
    outputs: DataFrame, table: TablePlan, schema: StructType, rows: Callable[[ChangeBatch], list[pa.Array]]
) -> DataFrame:
    """Return the parts in outputs as a frame of the schema `made`."""
    layout = table.layout.rows

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                part = unpack(payload.as_buffer(), layout)
                yield pa.RecordBatch.from_arrays(rows(part), schema.names)

    return outputs.select("payload").mapInArrow(task, schema)


def key_column(names: ColumnNames, path: Path) -> Column:
    """Return a key of a frame's rows; `names` are those of its columns."""
    return reduce(lambda column, part: column[part], path[1:], F.col(names[path[0]]))


def key_condition(names: ColumnNames, layout: RowLayout, under: Sequence[str]) -> Column:
    """Say that a row of the table, whose columns are called `names`, has these key columns."""
    condition = F.lit(True)
    for path, name in zip(layout.key_paths, under, strict=True):
        condition = condition & (F.col(name) == key_column(names, path))
    return condition
