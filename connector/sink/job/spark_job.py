"""A batch's plan -> a Spark job of map, shuffle by bucket and reduce -> what it brought back to the driver.

Tasks hand on opaque bytes, from Python to Python: an RDD, which Spark neither plans, optimises nor converts. Frames are
made of what look-ups have to join with tables, where there is any (docs/decisions/0088-a-job-of-opaque-bytes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import reduce
from typing import TypeVar

import attrs
from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.map_task import map_task
from connector.sink.job.reduce_task import reduce_task
from connector.sink.job.shuffle_slots import ShuffleSlots
from connector.sink.model.destination import Lookups, TableLookup, WriterFactory
from connector.sink.model.plan import BatchPlan
from connector.sink.model.result import DriverOutput, JobResult, KeyLookup
from connector.sink.model.task_output import OUTPUT_SCHEMA, OutputKind, TaskOutput, tell_driver, unpack_value

_Outputs = TypeVar("_Outputs", RDD[TaskOutput], DataFrame)


@attrs.frozen(eq=False)
class SparkJob:
    """The job of a Spark session (`model.job.Job`)."""

    spark: SparkSession

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return int(self.spark.sparkContext.defaultParallelism)

    def run(self, plan: BatchPlan, writers: WriterFactory, lookups: Lookups | None = None) -> JobResult:
        """Run one batch, see `model.job.Job.run`."""
        with raise_task_errors(), ExitStack() as kept:
            result = _run_with_lookups(self.spark, plan, writers, lookups or Lookups(), kept)
            result.resources = kept.pop_all()
            return result


def _run_with_lookups(
    spark: SparkSession, plan: BatchPlan, writers: WriterFactory, lookups: Lookups, kept: ExitStack
) -> JobResult:
    follows = writers.follows_keys and any(table.upsert for table in plan.tables)
    job_outputs = _map_reduce(spark, plan, writers)
    if not follows and not any(table.needs_lookup for table in plan.tables):
        return _build_result(_collect(job_outputs))
    # What only the table knows (rows of tombstones, unavailable values, where rows are) is looked up once the rest is
    # through. What one job hands to the next is persisted: computed again, it would write its files again.
    job_outputs = _persist(job_outputs, kept)
    result = _build_result(_collect(job_outputs))
    if not result.ready or not result.kinds_left:
        return result
    outputs = _to_frame(spark, job_outputs)
    late = list(_drop_late(outputs, plan, lookups.late_events, result, kept))
    if late:
        # Late candidates that are not late go on with the rest. One job for all tables: each has few rows to look up.
        judged = _persist(_reduce(_to_rdd(reduce(DataFrame.unionAll, late)), plan, writers, judged=True), kept)
        result.add(_collect(judged))
        outputs = outputs.unionAll(_to_frame(spark, judged))
    for table in plan.tables:
        own = outputs.where(F.col("table") == table.index)
        frames = [own]
        for lookup in lookups.joins:
            if not lookup.applies(table, result):
                continue
            for joined in lookup.run(own, table, result, kept):
                frame = _persist(joined, kept)
                result.add(_collect_frame(frame))
                result.tables_read.add(table.index)
                frames.append(frame)
        ranges = KeyRanges.join(result.key_ranges.get(table.index, ()))
        if table.needs_row_lookup and ranges.count:
            result.key_lookups[table.index] = KeyLookup(frames, ranges, plan.reducers)
    return result


def _persist(outputs: _Outputs, until: ExitStack) -> _Outputs:
    until.callback(outputs.unpersist)
    return outputs.persist(StorageLevel.MEMORY_AND_DISK)


def _collect(outputs: RDD[TaskOutput]) -> Iterator[DriverOutput]:
    """Return what the tasks tell the driver; all else stays on executors."""
    return map(unpack_value, outputs.mapPartitions(tell_driver).collect())


def _collect_frame(outputs: DataFrame) -> Iterator[DriverOutput]:
    return (unpack_value(row.payload) for row in outputs.where(F.col("kind") == OutputKind.DRIVER.value).collect())


def _to_frame(spark: SparkSession, outputs: RDD[TaskOutput]) -> DataFrame:
    return spark.createDataFrame(outputs.filter(_stays).map(TaskOutput.to_row), OUTPUT_SCHEMA, verifySchema=False)


def _stays(output: TaskOutput) -> bool:
    return output.kind != OutputKind.DRIVER


def _to_rdd(outputs: DataFrame) -> RDD[TaskOutput]:
    return outputs.rdd.map(TaskOutput.from_row)


def _build_result(outputs: Iterable[DriverOutput]) -> JobResult:
    result = JobResult().add(outputs)
    result.progress = merge_progress(result.progress)
    return result


def _drop_late(
    outputs: DataFrame, plan: BatchPlan, lookup: TableLookup | None, result: JobResult, kept: ExitStack
) -> Iterator[DataFrame]:
    """Return the late candidates of all tables that turned out not to be late."""
    for table in plan.tables if lookup is not None else ():
        if lookup is not None and lookup.applies(table, result):
            yield from lookup.run(outputs.where(F.col("table") == table.index), table, result, kept)


def _map_reduce(spark: SparkSession, plan: BatchPlan, writers: WriterFactory) -> RDD[TaskOutput]:
    shares = len(plan.assignment.shares)
    numbers = spark.sparkContext.parallelize(range(shares), max(1, shares))
    mapped = numbers.mapPartitions(map_task(plan, writers))
    return _reduce(mapped, plan, writers) if any(table.upsert for table in plan.tables) else mapped


def _reduce(
    outputs: RDD[TaskOutput], plan: BatchPlan, writers: WriterFactory, *, judged: bool = False
) -> RDD[TaskOutput]:
    slots = ShuffleSlots.of(plan)
    shuffled = outputs.map(slots.key).partitionBy(slots.count, int).coalesce(plan.reducers)
    return shuffled.mapPartitions(slots.sort).mapPartitions(reduce_task(plan, writers, judged=judged))
