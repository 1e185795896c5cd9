"""Keys whose deletes a task has to know -> the versions of those that are remembered, for the same task once more.

The keys stay on executors, and meet the table of deleted keys in a join by Spark, where a task asked for any.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.sink.destinations.late_events import BROADCAST_LIMIT
from connector.sink.model import task_output
from connector.sink.model.driver_output import DeletesWanted
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind, Task, TaskOutput, unpack_keys

_KEY, _VERSION = "_text", "version"


def ask_deletes(keys: pa.StringArray, table: TablePlan) -> Iterator[TaskOutput]:
    """Ask for the remembered deletes of some keys, as texts (`deleted_keys.keys_to_text`)."""
    asked = pa.RecordBatch.from_arrays([keys], [_KEY])
    yield TaskOutput.of_keys(asked, table.index, OutputKind.DELETES_WANTED)
    yield TaskOutput.of(DeletesWanted(table.index, len(keys)))


def find_deletes(outputs: DataFrame, remembered: DataFrame, table: TablePlan, count: int) -> DataFrame:
    """Return what is remembered of the keys that outputs ask for, as outputs of kind DELETES_FOUND.

    Args:
        outputs: those of the task that asks.
        remembered: the table's rows in the table of deleted keys; of documents dates are versions.
        table: the table's plan.
        count: how many keys are asked for.
    """
    wanted = outputs.where(F.col("kind") == OutputKind.DELETES_WANTED).select("payload")
    asked = wanted.mapInArrow(_unpack_wanted, f"{_KEY} string")
    asked = F.broadcast(asked) if count <= BROADCAST_LIMIT else asked
    found = remembered.join(asked, F.col("key") == F.col(_KEY)).select(_KEY, F.col("date").alias(_VERSION))
    return found.mapInArrow(_pack_task(table), task_output.OUTPUT_SCHEMA)


def _unpack_wanted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from (unpack_keys(payload.as_buffer()) for payload in batch.column(0))


def _pack_task(table: TablePlan) -> Task:
    index = table.index

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, versions = batch.columns
            if batch.num_rows:
                yield task_output.to_batch([pack_deletes(keys, versions, index)])

    return task


def pack_deletes(keys: pa.StringArray, versions: pa.Int64Array, table: int) -> TaskOutput:
    """Return an answer: keys, and the versions of their deletes."""
    found = pa.RecordBatch.from_arrays([keys, versions], [_KEY, _VERSION])
    return TaskOutput.of_keys(found, table, OutputKind.DELETES_FOUND)


def unpack_deletes(payload: pa.Buffer) -> Iterator[tuple[str, int]]:
    """Read an answer."""
    keys, versions = unpack_keys(payload).columns
    yield from zip(keys.to_pylist(), versions.to_pylist(), strict=True)
