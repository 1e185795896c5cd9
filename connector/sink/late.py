"""Changes that may be older than what their table holds -> those that are not. One join by Spark, where there are such.

    reduce task -> keys whose winning change is a suspect, with all their changes (parcels of kind SUSPECT)
                -> joined with the dates of the table's rows, and of keys that were deleted
                -> what stands, as parcels for the reduce task again
A suspect loses to a later date. Where dates are equal both are of one transaction, and Kafka's order decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import StructType

from connector.iceberg.carried import to_spark
from connector.iceberg.codes import key_codes
from connector.iceberg.nested import columns_of
from connector.sink import parcels
from connector.sink.held import Held, aliases, found_under, shape
from connector.sink.parcels import Parcel, Task
from connector.sink.parts import Folded, Part, codes_of, fold, pack, unpack
from connector.sink.plan import TablePlan, Tally
from connector.sink.remembered import key_text
from connector.sink.truncates import CLOCK

BROADCAST = 500_000
"""So many suspects at most go to where the table's rows are read, instead of the rows coming to them."""


def set_aside(folded: Folded, keys: tuple[str, ...]) -> tuple[Folded | None, Part | None]:
    """Part keys whose winner is a suspect from the others; a part marks only these winners as suspects."""
    suspect = np.concatenate([part.suspect for part in folded.parts])[folded.winners]
    if not suspect.any():
        return folded, None
    codes = codes_of(folded.parts, keys)
    aside = np.isin(codes, codes[folded.winners[suspect]])
    marks = np.zeros(len(codes), np.bool_)
    marks[folded.winners[suspect]] = True
    whole = attrs.evolve(Part.concat(folded.parts), suspect=marks)
    rest = None if aside.all() else fold([whole.take(np.flatnonzero(~aside))], keys)
    return rest, whole.take(np.flatnonzero(aside))


def standing(
    asked: DataFrame, count: int, dedup_column: str, table: TablePlan, held: Held, gone: DataFrame | None
) -> DataFrame:
    """Give what stands of suspects, as parcels of changes, and how many keys were late.

    Args:
        asked: parcels of kind SUSPECT of this table, one per bucket.
        count: how many keys are in them.
        dedup_column: the table's column that dates its rows.
        table: its plan; it is dated.
        held: what the table held at batch start.
        gone: (key, date) of its deleted keys, None where deletes keep their rows.
    """
    keys = aliases("key", len(table.layout.keys))
    suspects = asked.mapInArrow(_dated(table), _shape(table))
    suspects = F.broadcast(suspects) if count <= BROADCAST else suspects
    live, names = held.live, held.names
    dates = live.withColumn("_held", F.col(names[dedup_column]).cast("bigint"))
    lost = _later(dates.join(suspects, found_under(names, table.layout, keys)))
    if table.truncated and dedup_column == CLOCK:
        lost = lost.union(suspects.where(F.col("_date") < table.truncated).select("_bucket", "_row"))
    if gone is not None:
        dates = gone.withColumnRenamed("date", "_held")
        lost = lost.union(_later(dates.join(suspects, F.col("key") == F.col("_text"))))
    rows = lost.groupBy("_bucket").agg(F.collect_set("_row").alias("lost"))
    judged = asked.join(rows, F.col("bucket") == F.col("_bucket"), "left").select("bucket", "payload", "lost")
    return judged.mapInArrow(_let_through(table), parcels.SCHEMA)


def _later(joined: DataFrame) -> DataFrame:
    later: Column = F.col("_held") > F.col("_date")
    return joined.where(later).select("_bucket", "_row")


def _shape(table: TablePlan) -> StructType:
    layout = table.layout
    types = [field.type for field in layout.key_fields]
    names = ["_bucket", "_row", "_date", "_text", *aliases("key", len(types))]
    return shape([pa.int32(), pa.int64(), pa.int64(), pa.string(), *types], names)


def _dated(table: TablePlan) -> Task:
    """Give the task that tells of each suspect its place, date and key."""
    layout = table.layout
    names = ["_bucket", "_row", "_date", "_text", *aliases("key", len(layout.keys))]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, part in _unpacked(batches, layout.rows):
            rows = np.flatnonzero(part.suspect)
            keys = [column.take(pa.array(rows)) for column in columns_of(part.rows, layout.keys)]
            place = [pa.repeat(pa.scalar(bucket, pa.int32()), len(rows)), pa.array(rows, pa.int64())]
            dates = pa.array(part.order.dedup[rows])
            yield pa.RecordBatch.from_arrays([*place, dates, key_text(keys), *map(to_spark, keys)], names)

    return task


def _let_through(table: TablePlan) -> Task:
    """Give the task that leaves out the changes of keys that lost."""
    layout = table.layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        late = 0
        for batch in batches:
            for (bucket, part), lost in zip(_unpacked([batch], layout.rows), batch.column("lost"), strict=True):
                rows = np.array(lost.as_py() or [], np.int64)
                late += len(rows)
                codes = key_codes(columns_of(part.rows, layout.keys))
                stands = np.flatnonzero(~np.isin(codes, codes[rows]))
                if len(stands):
                    cleared = attrs.evolve(part.take(stands), suspect=np.zeros(len(stands), np.bool_))
                    yield parcels.batch([Parcel(parcels.CHANGES, pack(cleared), table.index, bucket)])
        yield parcels.batch([Parcel.of(parcels.TALLY, Tally(late=late))])

    return task


def _unpacked(
    batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch], columns: pa.Schema
) -> Iterator[tuple[int, Part]]:
    for batch in batches:
        for bucket, payload in zip(batch.column("bucket"), batch.column("payload"), strict=True):
            yield bucket.as_py(), unpack(payload.as_buffer(), columns)
