"""Rows of which only changes are known -> those rows completed from the table's rows, and deletes of the old ones.

MongoDB's updates without their document, if no change of the batch has it (`fold.document_patches`). Their keys are
joined with the table by Spark, once, only for batches that have such rows. A row that the table lacks too keeps what
its changes say.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from connector.iceberg.read.all_columns import read_all_columns
from connector.iceberg.types.values.spark_types import from_spark, to_spark
from connector.sink.destinations.iceberg.lookups.row_rewrite import rewrite_task
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


def patch_table_rows(outputs: DataFrame, table: TablePlan, table_rows: TableRows) -> DataFrame:
    """Write the rows that patches make of the table's; return the outputs of the files.

    Args:
        outputs: outputs of kind PATCHED_ROWS of this table.
        table: its plan.
        table_rows: what the table held at batch start.
    """
    # What runs on executors must not hold `table_rows`: frames cannot be sent.
    layout, names, place = file_layout(table), table_rows.names, table_rows.place
    columns, variants = layout.columns, layout.variants
    own = column_aliases("came", len(columns))
    under = [own[columns.get_field_index(path[0])] for path in layout.key_paths]
    schema = spark_schema([*columns.types, pa.string()], [*own, _PATCH])

    def encode(part: ChangeBatch) -> list[pa.Array]:
        patches = pa.nulls(len(part), pa.string()) if part.patches is None else part.patches
        return [*(to_spark(column) for column in part.rows.columns), patches]

    def patched(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [from_spark(batch.column(alias), field.type) for field, alias in zip(columns, own, strict=True)]
        incoming = pa.RecordBatch.from_arrays(values, schema=layout.rows)
        in_table = np.flatnonzero(np.asarray(batch.column(place[0]).is_valid()))
        if len(in_table):
            some = batch.take(pa.array(in_table))
            held_columns = read_all_columns(layout, some, names, place)
            base = pa.RecordBatch.from_arrays(list(held_columns.values()), schema=layout.rows)
            changed = patch_rows(incoming.take(pa.array(in_table)), base, some.column(_PATCH).to_pylist(), variants)
            incoming = pa.concat_batches([incoming, changed]).take(place_others(len(incoming), in_table))
        return pa.RecordBatch.from_arrays(incoming.columns, schema=columns)

    incoming = unpack_changes(outputs, table, schema, encode)
    joined = incoming.join(table_rows.live_rows, key_condition(names, layout, under), "left")
    return joined.select(*own, _PATCH, *names.values(), *place).mapInArrow(
        rewrite_task(table, FILE_LABEL, patched), OUTPUT_SCHEMA
    )
