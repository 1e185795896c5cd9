"""Changes of a batch + the versions that the table has -> a history of each key (slowly changing dimension, type 2).

reduce task: changes of a bucket -> outputs, and the keys to look up (`write_modes.scd2_versions`)
look-up:     versions that the table has under these keys -> outputs of the same buckets
second task: both -> versions that are new or end otherwise than before -> files
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import orjson
import pyarrow as pa
from pyiceberg.types import TimestamptzType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.all_columns import read_all_columns, readable_schema
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, column_name
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.values.single_values import encode_json
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.row_search.base import read_keys
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write_modes.registry import remove_rows
from connector.sink.destinations.iceberg.write_modes.row_lookup import emit_files
from connector.sink.destinations.iceberg.write_modes.scd2_versions import to_changes, update_versions
from connector.sink.destinations.join_columns import column_aliases, key_condition
from connector.sink.job.shuffle import pack, split_by_bucket, unpack
from connector.sink.model import task_output
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import VALID_FROM, VALID_TO, TablePlan
from connector.sink.model.task_output import OutputKind, Task, TaskOutput

FILE_LABEL = "history"


def update_histories(
    spark: SparkSession, java: Table, table: TablePlan, own: DataFrame, spans: KeyRanges, tasks: int, op_field: str
) -> DataFrame:
    """Return the outputs of the files that bring the histories up to date.

    Args:
        spark: the session.
        java: the table.
        table: its plan.
        own: its outputs.
        spans: where keys and times of the changes lie.
        tasks: how many tasks write.
        op_field: the column that tells rows that were read.
    """
    coming = own.where(F.col("kind") == OutputKind.NEW_VERSIONS)
    scanned = [] if table.base is None else plan_files(spark, java, table.base, _version_filter(spans, table))
    if scanned:
        schema = readable_schema(table.layout.schema_json)
        rows = TableReader(spark, java, schema).read_live_rows(scanned)
        names = {name: column_name(place) for place, name in enumerate(schema.names)}
        until = F.col(names[VALID_TO])
        rows = rows.where(until.isNull() | (until >= F.timestamp_micros(F.lit(_first_change_us(spans)))))
        keys = read_keys(own.where(F.col("kind") == OutputKind.VERSION_KEYS), table.layout, spans)
        condition = key_condition(names, table.layout, column_aliases("key", len(table.layout.keys)))
        live = rows.join(keys, condition, "left_semi").select(*names.values(), FILE_COLUMN, POSITION_COLUMN)
        coming = coming.unionAll(live.mapInArrow(_pack_task(table, names, op_field), task_output.OUTPUT_SCHEMA))
    shuffled = coming.repartitionById(tasks, F.pmod(F.col("bucket"), F.lit(tasks)))
    return shuffled.sortWithinPartitions("bucket").mapInArrow(_update_task(table), task_output.OUTPUT_SCHEMA)


def _version_filter(spans: KeyRanges, table: TablePlan) -> str:
    """Return the filter for versions that the changes may end, or stand before: not over when the first came."""
    keys = tuple({name: span for name, span in each.items() if name != VALID_FROM} for each in spans.ranges)
    since = {"type": "gt-eq", "term": VALID_TO, "value": encode_json(TimestamptzType(), _first_change_us(spans))}
    live = {"type": "or", "left": {"type": "is-null", "term": VALID_TO}, "right": since}
    of_versions = attrs.evolve(spans, ranges=keys).filter(table.layout.schema) if all(keys) else None
    where = live if of_versions is None else {"type": "and", "left": orjson.loads(of_versions), "right": live}
    return orjson.dumps(where).decode()


def _first_change_us(spans: KeyRanges) -> int:
    """Return the time of the first change (epoch microseconds)."""
    first: int = min(each[VALID_FROM][0] for each in spans.ranges)
    return first


def _pack_task(table: TablePlan, names: dict[str, str], op_field: str) -> Task:
    """Return the task that packs versions of the table: frames of its rows -> outputs by bucket."""
    layout, index = file_layout(table), table.index
    keys = [(name, layout.schema.find_type(name)) for name in layout.keys]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                arrays = list(read_all_columns(layout, batch, names, (FILE_COLUMN, POSITION_COLUMN)).values())
                part = to_changes(pa.RecordBatch.from_arrays(arrays, schema=layout.rows), op_field)
                for bucket, piece in split_by_bucket(part, keys, table.buckets):
                    yield task_output.to_batch([TaskOutput(OutputKind.TABLE_VERSIONS, pack(piece), index, bucket)])

    return task


def _update_task(table: TablePlan) -> Task:
    """Return the task that makes histories: outputs sorted by bucket -> outputs of files, and of keys to replace."""
    versioned, keys = table.with_identity_key, table.layout.keys

    def write_versions(
        writer: TableWriter, changes: list[ChangeBatch], versions: list[ChangeBatch]
    ) -> Iterator[pa.RecordBatch]:
        if changes:
            replaced, rows = update_versions(changes, versions, keys, table.layout.columns)
            writer.write_rows(rows)
            for output in remove_rows(writer, replaced, versioned):
                yield task_output.to_batch([output])

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(file_layout(versioned), FILE_LABEL)
        at, changes, versions = -1, list[ChangeBatch](), list[ChangeBatch]()
        for batch in batches:
            for kind, _, bucket, payload in task_output.read_rows(batch):
                if bucket != at:
                    yield from write_versions(writer, changes, versions)
                    at, changes, versions = bucket, [], []
                (changes if kind == OutputKind.NEW_VERSIONS else versions).append(unpack(payload, table.layout.rows))
        yield from write_versions(writer, changes, versions)
        yield from emit_files(writer.close(), table.index)

    return task
