"""Rows of which only changes are known -> those rows whole, made of the table's, and deletes of the old ones.

MongoDB's updates without their document, whose document no change of the batch tells (`fold.document_patches`). One
join of their keys with the table, by Spark, only for batches that have such rows. A row that the table has not either
stays what its changes say.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from connector.iceberg.types.values.spark_types import from_spark, to_spark
from connector.sink.destinations.iceberg.lookups.row_rewrite import rewrite_task
from connector.sink.destinations.iceberg.snapshot_rows import read_all_columns
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.join_columns import (
    TableRows,
    column_aliases,
    key_condition,
    spark_schema,
    unpack_changes,
)
from connector.sink.fold.values.document_patches import patch_rows
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OUTPUT_SCHEMA
from serde.arrays import place_others

FILE_LABEL = "patched"
_PATCH = "_patch"


def patch_table_rows(asked: DataFrame, table: TablePlan, held: TableRows) -> DataFrame:
    """Write the rows that patches make of the table's; return the outputs of the files.

    Args:
        asked: outputs of kind PATCHED_ROWS of this table.
        table: its plan.
        held: what the table held at batch start.
    """
    # What runs on executors must not hold `held`: frames cannot be sent.
    layout, names, place = file_layout(table), held.names, held.place
    columns, variants = layout.columns, layout.variants
    own = column_aliases("came", len(columns))
    under = [own[columns.get_field_index(path[0])] for path in layout.key_paths]
    made = spark_schema([*columns.types, pa.string()], [*own, _PATCH])

    def encode(part: ChangeBatch) -> list[pa.Array]:
        patches = pa.nulls(len(part), pa.string()) if part.patches is None else part.patches
        return [*(to_spark(column) for column in part.rows.columns), patches]

    def patched(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [from_spark(batch.column(alias), field.type) for field, alias in zip(columns, own, strict=True)]
        came = pa.RecordBatch.from_arrays(found, schema=layout.rows)
        there = np.flatnonzero(np.asarray(batch.column(place[0]).is_valid()))
        if len(there):
            some = batch.take(pa.array(there))
            held_columns = read_all_columns(layout, some, names, place)
            base = pa.RecordBatch.from_arrays(list(held_columns.values()), schema=layout.rows)
            changed = patch_rows(came.take(pa.array(there)), base, some.column(_PATCH).to_pylist(), variants)
            came = pa.concat_batches([came, changed]).take(place_others(len(came), there))
        return pa.RecordBatch.from_arrays(came.columns, schema=columns)

    came = unpack_changes(asked, table, made, encode)
    joined = came.join(held.live_rows, key_condition(names, layout, under), "left")
    return joined.select(*own, _PATCH, *names.values(), *place).mapInArrow(
        rewrite_task(table, FILE_LABEL, patched), OUTPUT_SCHEMA
    )
