"""Tombstones of keys whose row only the table knows -> that row, marked deleted (soft delete).

Where events carry deletes themselves (envelopes, the rewrite modes) a tombstone only repeats one and is left out. Where
they do not (`delete.tombstone.handling.mode` tombstone), soft delete has to look the last known row up: one join of the
tombstones' keys with the table, by Spark, only for batches that have such tombstones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import StructType

from connector.errors import FatalError
from connector.iceberg.conversion import converted
from connector.iceberg.types import nullable
from connector.iceberg.writing import TableWriter
from connector.sink import parcels
from connector.sink.apply import mark_deleted
from connector.sink.decode import DELETED
from connector.sink.parcels import Parcel, Task
from connector.sink.parts import unpack
from connector.sink.plan import TablePlan
from serde.bits import uuid

LABEL = "recall"
_WHY = "a tombstone needs the table's last row"
_INSTEAD = "use delete.tombstone.handling.mode=rewrite at the source, or hard deletes"


def recalled(catalog: str, asked: DataFrame, table: TablePlan) -> DataFrame:
    """Write the rows that tombstones mark deleted; give the parcels of the files.

    Args:
        catalog: the Spark catalog of the table.
        asked: parcels of kind RECALL of this table.
        table: its plan, with the snapshot to look in.

    Raises:
        FatalError: Spark cannot read the table (it has a column of type time).
    """
    rows = readable(asked.sparkSession, catalog, table, _WHY, _INSTEAD)
    keys = list(table.layout.keys)
    shape = StructType([rows.schema[name] for name in keys])
    wanted = asked.select("payload").mapInArrow(_keys(table), shape)
    live = rows.where(~F.coalesce(F.col(DELETED).cast("string"), F.lit("false")).eqNullSafe("true"))
    return live.join(wanted.distinct(), keys).select(*rows.columns).mapInArrow(_written(table), parcels.SCHEMA)


def readable(spark: SparkSession, catalog: str, table: TablePlan, why: str, instead: str) -> DataFrame:
    """Give the table as it was at batch start. FatalError, with why it is needed and what to do, when Spark cannot."""
    name = ".".join(f"`{part}`" for part in (catalog, *table.layout.name.split(".")))
    try:
        # A table without a snapshot has no rows, but columns.
        frame = spark.read.table(name).limit(0)
        if table.base is not None:
            frame = spark.read.option("versionAsOf", table.base).table(name)
        _ = frame.schema
    except Exception as error:
        raise FatalError(
            f"table {table.layout.name}: {why}, and Spark cannot read the table ({type(error).__name__}); {instead}"
        ) from error
    return frame


def _keys(table: TablePlan) -> Task:
    columns = nullable(table.layout.columns)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                rows = unpack(payload.as_buffer(), columns).rows.select(list(table.layout.keys))
                yield pa.RecordBatch.from_arrays([as_spark_has(column) for column in rows.columns], rows.schema.names)

    return task


def as_spark_has(column: pa.Array) -> pa.Array:
    """Give a column as Spark has it: a uuid is text there."""
    return converted(column, pa.string())[0] if isinstance(column.type, pa.UuidType) else column


def from_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give a column of Spark's in the table's type: the other way round."""
    return uuid(column)[0] if isinstance(kind, pa.UuidType) else converted(column, kind)[0]


def _written(table: TablePlan) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(table.layout, LABEL)
        for batch in batches:
            columns = [from_spark(batch.column(field.name), field.type) for field in table.layout.columns]
            rows = pa.RecordBatch.from_arrays(columns, schema=table.layout.columns)
            writer.rows(mark_deleted(rows))
            writer.deletes(rows.select(list(table.layout.keys)))
        for description in writer.close():
            yield parcels.batch([Parcel(parcels.FILE, description, table.index)])

    return task
