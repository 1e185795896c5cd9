"""Keys of a batch -> the rows that the table holds under them -> files that do without those rows.

For tables whose replaced rows do not go by equality deletes. Ranges of the keys leave out data files that cannot hold
any of them (`keys.key_ranges`); of the others Iceberg's readers give key columns, file and position of the
rows that live, and one join finds those of the batch's keys. Then, by write mode:

position-delete  places by data file -> position deletes or deletion vectors (`write.position_deletes`)
copy-on-write    data files with such rows -> their other rows in new files
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import attrs
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit import Found
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.scan_planning import Task as ScanTask
from connector.iceberg.read.scan_planning import planned
from connector.iceberg.read.table_reader import FILE, POSITION, ROW_ID, SEQUENCE, Reader, column, release
from connector.iceberg.types.nested_columns import batch_of, chosen
from connector.iceberg.types.spark_types import from_spark
from connector.iceberg.write.position_deletes import DataFilePlace, PositionDeleteWriter
from connector.iceberg.write.table_writer import TableWriter
from connector.runtime.spark.task_errors import of_tasks
from connector.sink.destinations.iceberg.lookups.snapshot_rows import (
    aliases,
    found_under,
    key_at,
    readable,
    shape,
    whole,
)
from connector.sink.model import task_output
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import Parcel, Task

SENT_KEYS, SENT_BYTES = 1_000_000, 64 * 1024**2
"""Up to so many keys of a batch every executor gets them all (a broadcast join); more are joined by a shuffle."""

LABEL = "found"
_VECTORS_SINCE = 3


@attrs.frozen(eq=False)
class Asked:
    """Keys whose rows have to go: frames of parcels that have some of kind KEYS, where they lie, tasks for the work."""

    parcelled: Sequence[DataFrame]
    ranges: KeyRanges
    tasks: int = 1

    @staticmethod
    def of(spark: SparkSession, asked: Sequence[Parcel]) -> Asked:
        """Ask for a few keys that are here."""
        ranges = KeyRanges.joined(
            task_output.value(parcel.payload) for parcel in asked if parcel.kind == task_output.RANGES
        )
        keys = [(p.kind, p.table, p.bucket, p.payload) for p in asked if p.kind == task_output.KEYS]
        return Asked([spark.createDataFrame(keys, task_output.SCHEMA)], ranges)


def found(spark: SparkSession, table: Table, plan: TablePlan, asked: Asked) -> tuple[Found, list[bytes]]:
    """Find rows by their keys and write files without them; give the files' descriptions.

    Raises:
        FatalError, RetriableError: the table's metadata cannot be read.
    """
    try:
        with of_tasks():
            return _found(spark, table, plan, asked)
    finally:
        release(spark, table)


def _found(spark: SparkSession, table: Table, plan: TablePlan, asked: Asked) -> tuple[Found, list[bytes]]:
    where = asked.ranges.filter(plan.layout.schema)
    scanned = [] if plan.base is None else planned(spark, table, plan.base, where)
    if not scanned:
        return Found(where=where), []
    frames = [frame.where(F.col("kind") == task_output.KEYS) for frame in asked.parcelled]
    keys = joined_keys(reduce(DataFrame.unionAll, frames), plan.layout, asked.ranges)
    if plan.write_mode == "copy-on-write":
        return _copied(spark, table, plan, scanned, keys, asked.ranges)
    places = {task.path: task.place for task in scanned}
    hits = _matching(_live(spark, table, plan.layout, scanned), keys, plan.layout)
    work = _deleting(plan, places, as_vectors=table.format_version >= _VECTORS_SINCE)
    made = hits.repartition(asked.tasks, FILE).sortWithinPartitions(FILE).mapInArrow(work, task_output.SCHEMA)
    files = [bytes(row.payload) for row in made.collect()]
    named = {orjson.loads(file)["referenced-data-file"] for file in files}
    return Found([task for task in scanned if task.path in named], where=where), files


def _live(spark: SparkSession, table: Table, layout: TableLayout, scanned: Sequence[ScanTask]) -> DataFrame:
    """Give the key columns and place of every row that lives; a schema of keys only is one that Spark can read."""
    document = orjson.loads(layout.schema_json)
    schema = SnapshotSchema(orjson.dumps({**document, "fields": chosen(document["fields"], layout.key_paths)}).decode())
    names = {name: column(place) for place, name in enumerate(schema.names)}
    live = Reader(spark, table, schema).live(scanned)
    keys = zip(layout.key_paths, aliases("live", len(layout.keys)), strict=True)
    return live.select(*(key_at(names, path).alias(name) for path, name in keys), FILE, POSITION)


def joined_keys(parcelled: DataFrame, layout: TableLayout, ranges: KeyRanges) -> DataFrame:
    """Give the key columns (`key`, see `held.aliases`) in parcels of keys; few are sent to every executor."""
    names = aliases("key", len(layout.keys))
    made = shape([field.type for field in layout.key_fields], names)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                yield task_output.keys(payload.as_buffer()).rename_columns(names)

    keys = parcelled.select("payload").mapInArrow(task, made)
    few = ranges.count <= SENT_KEYS and ranges.size_bytes <= SENT_BYTES
    return F.broadcast(keys) if few else keys


def _matching(live: DataFrame, keys: DataFrame, layout: TableLayout) -> DataFrame:
    condition = F.lit(True)
    for own, key in zip(*(aliases(side, len(layout.keys)) for side in ("live", "key")), strict=True):
        condition = condition & (F.col(own) == F.col(key))
    return live.join(keys, condition, "left_semi").select(FILE, POSITION)


def _deleting(plan: TablePlan, places: dict[str, DataFilePlace], *, as_vectors: bool) -> Task:
    """Give the task that deletes places, sorted by file: frames of them -> parcels of files."""
    layout, index = plan.layout, plan.index

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = PositionDeleteWriter(layout, LABEL, places, as_vectors=as_vectors)
        for batch in batches:
            yield from _sent(writer.take(*batch.columns), index)
        yield from _sent(writer.close(), index)

    return task


def _sent(descriptions: Iterator[bytes], index: int) -> Iterator[pa.RecordBatch]:
    for description in descriptions:
        yield task_output.batch([Parcel(task_output.FILE, description, index)])


def _copied(
    spark: SparkSession,
    table: Table,
    plan: TablePlan,
    scanned: Sequence[ScanTask],
    keys: DataFrame,
    ranges: KeyRanges,
) -> tuple[Found, list[bytes]]:
    """Rewrite the data files that have rows of the keys; what stays is written under the present schema and spec."""
    live = _live(spark, table, plan.layout, scanned)
    hit = {row[0] for row in _matching(live, keys, plan.layout).select(FILE).distinct().collect()}
    touched = [task for task in scanned if task.path in hit]
    if not touched:
        return Found(where=ranges.filter(plan.layout.schema)), []
    schema = readable(plan.layout.schema_json)
    lineage = table.format_version >= _VECTORS_SINCE
    rows = Reader(spark, table, schema).live(touched, lineage=lineage)
    names = {name: column(place) for place, name in enumerate(schema.names)}
    condition = found_under(names, plan.layout, aliases("key", len(plan.layout.keys)))
    also = (ROW_ID, SEQUENCE) if lineage else ()
    staying = rows.join(keys, condition, "left_anti").select(*names.values(), FILE, POSITION, *also)
    made = staying.mapInArrow(_rewriting(plan, names, also), task_output.SCHEMA).collect()
    files = [bytes(row.payload) for row in made if row.kind == task_output.FILE]
    seen = KeyRanges.joined(
        [ranges, *(task_output.value(row.payload) for row in made if row.kind == task_output.RANGES)]
    )
    # A delete of any row of a file that was rewritten must not be lost, whatever its key.
    return Found(touched, rewritten=True, where=seen.filter(plan.layout.schema)), files


def _rewriting(plan: TablePlan, names: dict[str, str], also: Sequence[str]) -> Task:
    """Give the task that writes rows anew as they are, with their lineage: frames of rows -> parcels of files."""
    layout, index = plan.layout, plan.index
    written = with_lineage(layout) if also else layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer, ranges = TableWriter(written, LABEL), KeyRanges()
        for batch in batches:
            columns = list(whole(layout, batch, names, (FILE, POSITION)).values())
            columns += [from_spark(batch.column(name), pa.int64()) for name in also]
            rows = pa.RecordBatch.from_arrays(columns, schema=written.columns)
            writer.rows(rows)
            ranges = KeyRanges.joined([ranges, KeyRanges.of(batch_of(rows, layout.keys))])
        yield task_output.batch([Parcel.of(task_output.RANGES, ranges, index)])
        yield from _sent(writer.close(), index)

    return task


def with_lineage(layout: TableLayout) -> TableLayout:
    """Give the layout of data files that keep the rows' ids and sequence numbers (spec, "Row Lineage")."""
    document = orjson.loads(layout.schema_json)
    own = [
        {"id": 2147483540, "name": "_row_id", "required": False, "type": "long"},
        {"id": 2147483539, "name": "_last_updated_sequence_number", "required": False, "type": "long"},
    ]
    return attrs.evolve(layout, schema_json=orjson.dumps({**document, "fields": document["fields"] + own}).decode())
