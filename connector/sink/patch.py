"""Rows with unsent values that only the table knows -> those rows whole, and the equality deletes for the old ones.

One join of such rows with the table as it was at batch start, by Spark, only for batches that have any
(`connector.sink.unsent`). A row that the table has not keeps what came: there is nothing to keep instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType

from connector.iceberg.conversion import converted
from connector.iceberg.types import nullable
from connector.iceberg.writing import TableWriter
from connector.sink import parcels
from connector.sink.parcels import Parcel, Task
from connector.sink.parts import unpack
from connector.sink.plan import TablePlan
from connector.sink.recall import as_spark_has, readable
from serde.bits import valid_of
from serde.unavailable import unavailable

LABEL = "patch"


def patched(catalog: str, asked: DataFrame, table: TablePlan) -> DataFrame:
    """Write the rows with the table's values in place of unsent ones; give the parcels of the files.

    Args:
        catalog: the Spark catalog of the table.
        asked: parcels of kind PATCH of this table.
        table: its plan, with the snapshot to look in.

    Raises:
        FatalError: Spark cannot read the table (it has a column of type time).
    """
    rows = readable(asked.sparkSession, catalog, table, "an update without all its values needs the table's row")
    keys = list(table.layout.keys)
    names = [field.name for field in rows.schema if field.name not in keys and _may_be_unsent(field.dataType)]
    held = rows.select(*(_column(key) for key in keys), *(_column(n).alias(_held(i)) for i, n in enumerate(names)))
    came = asked.select("payload").mapInArrow(_rows(table), rows.schema)
    joined = came.join(held, keys, "left")
    chosen = joined.select(*(_column(n) for n in rows.columns), *(F.col(_held(i)) for i in range(len(names))))
    return chosen.mapInArrow(_written(table, names), parcels.SCHEMA)


def _may_be_unsent(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType | ArrayType | MapType)


def _column(name: str) -> F.Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _held(index: int) -> str:
    return f"_held_{index}"


def _rows(table: TablePlan) -> Task:
    columns = nullable(table.layout.columns)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                rows = unpack(payload.as_buffer(), columns).rows
                yield pa.RecordBatch.from_arrays([as_spark_has(c) for c in rows.columns], rows.schema.names)

    return task


def _written(table: TablePlan, names: list[str]) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(table.layout, LABEL)
        for batch in batches:
            columns = {f.name: converted(batch.column(f.name), f.type)[0] for f in table.layout.columns}
            for index, name in enumerate(names):
                held = converted(batch.column(_held(index)), columns[name].type)[0]
                columns[name] = kept(columns[name], held)
            rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=table.layout.columns)
            writer.rows(rows)
            writer.deletes(rows.select(list(table.layout.keys)))
        for description in writer.close():
            yield parcels.batch([Parcel(parcels.FILE, description, table.index)])

    return task


def kept(came: pa.Array, held: pa.Array) -> pa.Array:
    """Give the column that came, with what the table holds where a value was not sent."""
    unsent = unavailable(came)
    if unsent is None:
        return came
    place = np.arange(len(came)) + np.where(unsent & valid_of(held), len(came), 0)
    return pa.concat_arrays([came, held]).take(pa.array(place))
