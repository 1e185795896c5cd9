"""Tombstones of keys whose row only the table has -> that row, marked deleted (soft delete).

If events carry deletes themselves (envelopes, the rewrite modes), a tombstone only repeats one and is dropped. If they
do not (`delete.tombstone.handling.mode` tombstone), a soft delete must look up the last known row: one join of the
tombstones' keys with the table, by Spark, only for batches that have such tombstones.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.read.all_columns import read_all_columns
from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.types.values.spark_types import to_spark
from connector.sink.destinations.iceberg.lookups.row_rewrite import rewrite_task
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.join_columns import (
    TableRows,
    column_aliases,
    key_condition,
    spark_schema,
    unpack_changes,
)
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OUTPUT_SCHEMA
from serde.events.changes import DELETED_COLUMN

FILE_LABEL = "recall"


def mark_deleted_rows(outputs: DataFrame, table: TablePlan, table_rows: TableRows) -> DataFrame:
    """Write the rows that tombstones mark deleted; return the outputs of the files.

    Args:
        outputs: outputs of kind TOMBSTONES of this table.
        table: its plan.
        table_rows: what the table held at batch start.
    """
    # What runs on executors must not hold `table_rows`: frames cannot be sent.
    layout, names, place = file_layout(table), table_rows.names, table_rows.place
    under = column_aliases("key", len(layout.keys))
    types = [field.type for field in layout.key_fields]

    def key_columns(part: ChangeBatch) -> list[pa.Array]:
        return [to_spark(column) for column in read_columns(part.rows, layout.keys)]

    def deleted(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = read_all_columns(layout, batch, names, place)
        return mark_deleted(pa.RecordBatch.from_arrays(list(columns.values()), schema=layout.columns))

    wanted = unpack_changes(outputs, table, spark_schema(types, under), key_columns).distinct()
    live = table_rows.live_rows
    if DELETED_COLUMN in names:
        is_marked = F.coalesce(F.col(names[DELETED_COLUMN]).cast("string"), F.lit("false"))
        live = live.where(~is_marked.eqNullSafe("true"))
    joined = live.join(wanted, key_condition(names, layout, under)).select(*names.values(), *place)
    return joined.mapInArrow(rewrite_task(table, FILE_LABEL, deleted), OUTPUT_SCHEMA)
