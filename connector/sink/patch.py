"""Rows with unsent values that no change of their key tells -> those rows whole, and equality deletes for the old ones.

came   rows with unsent values (`connector.sink.unsent`), each to be looked up under its own key, or, where it goes back
       to a create, under the key that the delete at the same place of the source's log has (a changed key)
last   the last rows that the batch knows of keys which it deletes
held   the table as it was at batch start
One join by Spark, only for batches that have such rows. What neither tells stays as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, MapType, StringType, StructField, StructType

from connector.iceberg.types import nullable
from connector.iceberg.writing import TableWriter
from connector.sink import parcels
from connector.sink.fold import NONE
from connector.sink.parcels import Parcel, Task
from connector.sink.parts import Part, unpack
from connector.sink.plan import TablePlan
from connector.sink.recall import as_spark_has, from_spark, readable
from serde.bits import valid_of
from serde.unavailable import unavailable

LABEL = "patch"
_WHY = "an update without all its values needs the table's row"
_INSTEAD = "leave its time columns out (debezium.source.column.exclude.list) or use REPLICA IDENTITY FULL at the source"
_PLACE = StructType(
    [StructField("_lsn", LongType()), StructField("_ts", LongType()), StructField("_moved", LongType())]
)
_CREATE = ord("c")


@attrs.frozen
class _Names:
    """Columns of the joins: the table's keys and what may be unsent, and their names on the other sides."""

    keys: tuple[str, ...]
    values: tuple[str, ...]

    def of(self, side: str, names: Sequence[str]) -> list[str]:
        return [f"_{side}_{index}" for index in range(len(names))]


def patched(catalog: str, parcelled: DataFrame, table: TablePlan) -> DataFrame:
    """Write the rows with known values in place of unsent ones; give the parcels of the files.

    Args:
        catalog: the Spark catalog of the table.
        parcelled: parcels of this table, of kinds PATCH, MOVED and LAST.
        table: its plan, with the snapshot to look in.

    Raises:
        FatalError: Spark cannot read the table (it has a column of type time).
    """
    held = readable(parcelled.sparkSession, catalog, table, _WHY, _INSTEAD)
    keys = tuple(table.layout.keys)
    values = (field.name for field in held.schema if field.name not in keys and _may_be_unsent(field.dataType))
    names = _Names(keys, tuple(values))
    key_types = StructType([held.schema[name] for name in keys])
    came = _of_kind(parcelled, parcels.PATCH, table, StructType([*held.schema, *_PLACE]), _row_and_place)
    moved = _of_kind(parcelled, parcels.MOVED, table, StructType([*key_types, *_PLACE]), _key_and_place)
    last = _of_kind(parcelled, parcels.LAST, table, held.schema, _row)
    joined = _with_old_keys(came, moved, names)
    for side, rows in (("last", last), ("held", held)):
        joined = _looked_up(joined, rows, side, names)
    sides = [F.col(name) for side in ("last", "held") for name in names.of(side, names.values)]
    # mapInArrow takes a dot in a column's name for a path, so none keeps its own.
    own = [_column(name).alias(alias) for name, alias in zip(held.columns, names.of("came", held.columns), strict=True)]
    return joined.select(*own, *sides).mapInArrow(_written(table, names), parcels.SCHEMA)


def _may_be_unsent(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType | ArrayType | MapType)


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _with_old_keys(came: DataFrame, moved: DataFrame, names: _Names) -> DataFrame:
    """Add the key to look under: the old one of a row whose key changed, where that is known, else the row's own."""
    old = names.of("old", names.keys)
    renamed = [_column(key).alias(name) for key, name in zip(names.keys, old, strict=True)]
    place = (F.col("_lsn").alias("_at_lsn"), F.col("_ts").alias("_at_ts"))
    by_place = moved.select(*place, *renamed).dropDuplicates(["_at_lsn", "_at_ts"])
    # A hard delete has no row, and so no clock of its own: its place in the log has to do.
    same_time = F.col("_at_ts").isNull() | (F.col("_at_ts") == F.col("_ts"))
    joined = came.join(by_place, (F.col("_lsn") == F.col("_at_lsn")) & same_time, "left")
    for key, name, under in zip(names.keys, old, names.of("under", names.keys), strict=True):
        joined = joined.withColumn(
            under, F.when(F.col("_moved") == 1, F.coalesce(F.col(name), _column(key))).otherwise(_column(key))
        )
    return joined


def _looked_up(joined: DataFrame, rows: DataFrame, side: str, names: _Names) -> DataFrame:
    keys = names.of(f"{side}_key", names.keys)
    values = names.of(side, names.values)
    chosen = zip((*names.keys, *names.values), (*keys, *values), strict=True)
    found = rows.select(*(_column(name).alias(alias) for name, alias in chosen))
    same = [F.col(under) == F.col(key) for under, key in zip(names.of("under", names.keys), keys, strict=True)]
    return joined.join(found, same, "left")


Columns = Callable[[Part, TablePlan], list[pa.Array]]


def _of_kind(parcelled: DataFrame, kind: str, table: TablePlan, shape: StructType, columns: Columns) -> DataFrame:
    layout = nullable(table.layout.columns)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                part = unpack(payload.as_buffer(), layout)
                yield pa.RecordBatch.from_arrays(columns(part, table), shape.names)

    return parcelled.where(F.col("kind") == kind).select("payload").mapInArrow(task, shape)


def _row(part: Part, _: TablePlan) -> list[pa.Array]:
    return [as_spark_has(column) for column in part.rows.columns]


def _row_and_place(part: Part, table: TablePlan) -> list[pa.Array]:
    return [*_row(part, table), *_place(part)]


def _key_and_place(part: Part, table: TablePlan) -> list[pa.Array]:
    return [*(as_spark_has(part.rows.column(name)) for name in table.layout.keys), *_place(part)]


def _place(part: Part) -> list[pa.Array]:
    order = part.order
    numbers = [pa.array(column, mask=column == NONE) for column in (order.lsn, order.dedup)]
    return [*numbers, pa.array((order.op == _CREATE).astype(np.int64))]


def _written(table: TablePlan, names: _Names) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(table.layout, LABEL)
        for batch in batches:
            came = zip(table.layout.columns, names.of("came", table.layout.columns.names), strict=True)
            columns = {f.name: from_spark(batch.column(alias), f.type) for f, alias in came}
            for side in ("last", "held"):
                for name, other in zip(names.values, names.of(side, names.values), strict=True):
                    columns[name] = kept(columns[name], from_spark(batch.column(other), columns[name].type))
            rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=table.layout.columns)
            writer.rows(rows)
            writer.deletes(rows.select(list(table.layout.keys)))
        for description in writer.close():
            yield parcels.batch([Parcel(parcels.FILE, description, table.index)])

    return task


def kept(came: pa.Array, held: pa.Array) -> pa.Array:
    """Give the column that came, with what is held elsewhere where a value was not sent."""
    unsent = unavailable(came)
    if unsent is None:
        return came
    place = np.arange(len(came)) + np.where(unsent & valid_of(held), len(came), 0)
    return pa.concat_arrays([came, held]).take(pa.array(place))
