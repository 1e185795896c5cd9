"""Changes that may be older than what their table holds -> those that are not. One join by Spark, where there are such.

    reduce task -> keys whose winning change is a suspect, with all their changes (outputs of kind LATE_CANDIDATES)
                -> joined with what the table's rows tell of their age, and what is known of keys that were deleted
                -> what stands, as outputs for the reduce task again
A suspect loses where it is proven to be older (`is_older`). Where nothing is proven Kafka's order decides. Documents
that are there have versions, so only deleted keys are asked, which the cluster forgets: the smaller version loses, but
deletes are sent in any case.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import StructType

from connector.iceberg.state.deleted_keys_schema import DELETE_ORDER_COLUMNS
from connector.sink.destinations.join_columns import TableRows, column_aliases, key_condition, spark_schema
from connector.sink.destinations.late_event_tasks import (
    CANDIDATE_COLUMNS,
    CANDIDATE_SCHEMA,
    candidate_task,
    drop_late_task,
    find_age_columns,
    find_older_than_delete,
    older_than_row_task,
)
from connector.sink.model import task_output
from connector.sink.model.plan import BatchPlan, TablePlan

BROADCAST_LIMIT = 500_000
"""So many suspects at most go to where the table's rows are read, instead of the rows coming to them."""

_LATE_SCHEMA = "_bucket int, _row long"


def drop_late_events(
    outputs: DataFrame,
    count: int,
    plan: BatchPlan,
    table: TablePlan,
    table_rows: TableRows | None,
    deleted_keys: DataFrame | None,
) -> DataFrame:
    """Return what stands of suspects, as outputs of kind CHANGES, and how many keys were late.

    Args:
        outputs: outputs of kind LATE_CANDIDATES of this table, one per bucket.
        count: how many keys are in them.
        plan: the batch's.
        table: the table's; it is dated, or numbered.
        table_rows: what the table held at batch start; None of documents.
        deleted_keys: what is remembered of its deleted keys, None where deletes keep their rows.
    """
    keys = column_aliases("key", len(table.layout.keys))
    suspects = outputs.mapInArrow(candidate_task(table, plan), _candidate_schema(table))
    lost = suspects.where(F.col("_cut")).select("_bucket", "_row")
    suspects = F.broadcast(suspects) if count <= BROADCAST_LIMIT else suspects
    if table_rows is not None:
        telling = [name for name in table_rows.names if name in find_age_columns(table.layout, plan)]
        renamed = zip(telling, column_aliases("held", len(telling)), strict=True)
        columns = [F.col(table_rows.names[name]).alias(alias) for name, alias in renamed]
        joined = table_rows.live_rows.join(suspects, key_condition(table_rows.names, table.layout, keys)).select(
            *CANDIDATE_COLUMNS, *columns
        )
        lost = lost.union(joined.mapInArrow(older_than_row_task(telling, plan), _LATE_SCHEMA))
    if deleted_keys is not None:
        joined = deleted_keys.join(suspects, F.col("key") == F.col("_text")).select(
            *CANDIDATE_COLUMNS, *DELETE_ORDER_COLUMNS
        )
        lost = lost.union(joined.mapInArrow(find_older_than_delete, _LATE_SCHEMA))
    rows = lost.groupBy("_bucket").agg(F.collect_set("_row").alias("lost"))
    judged = outputs.join(rows, F.col("bucket") == F.col("_bucket"), "left").select("bucket", "payload", "lost")
    return judged.mapInArrow(drop_late_task(table), task_output.OUTPUT_SCHEMA)


def _candidate_schema(table: TablePlan) -> StructType:
    types = [field.type for field in table.layout.key_fields]
    return spark_schema(
        [*(field.type for field in CANDIDATE_SCHEMA), *types],
        [*CANDIDATE_SCHEMA.names, *column_aliases("key", len(types))],
    )
