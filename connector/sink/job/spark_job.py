"""A batch as a Spark job: map, shuffle by bucket, reduce; and what it brought back to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import reduce

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.map_task import map_task
from connector.sink.job.reduce_task import reduce_task
from connector.sink.model.destination import Lookups, TableLookup, WriterFactory
from connector.sink.model.plan import BatchPlan
from connector.sink.model.result import DriverOutput, JobResult, KeyLookup
from connector.sink.model.task_output import OUTPUT_SCHEMA, OutputKind, unpack_value


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
            result.kept = kept.pop_all()
            return result


def _run_with_lookups(
    spark: SparkSession, plan: BatchPlan, writers: WriterFactory, lookups: Lookups, kept: ExitStack
) -> JobResult:
    follows = writers.follows_keys and any(table.upsert for table in plan.tables)
    if not follows and not any(table.needs_lookup for table in plan.tables):
        return _build_result(_collect(_map_reduce(spark, plan, writers)))
    # What only the table knows (rows of tombstones, unavailable values, where rows are) is looked up once the rest is
    # through. What one job hands to the next is persisted: computed again, it would write its files again.
    outputs = _persist(_map_reduce(spark, plan, writers), kept)
    result = _build_result(_collect(outputs))
    late = list(_drop_late(outputs, plan, lookups.late_events, result, kept)) if result.ready else []
    if late:
        # Late candidates that are not late go on with the rest. One job for all tables: each has few rows to look up.
        frame = _persist(_reduce(reduce(DataFrame.unionAll, late), plan, writers, judged=True), kept)
        result.add(_collect(frame))
        outputs = outputs.unionAll(frame)
    for table in plan.tables if result.ready else ():
        own = outputs.where(F.col("table") == table.index)
        frames = [own]
        for lookup in lookups.joins:
            if not lookup.applies(table, result):
                continue
            for joined in lookup.run(own, table, result, kept):
                frame = _persist(joined, kept)
                result.add(_collect(frame))
                result.tables_read.add(table.index)
                frames.append(frame)
        ranges = KeyRanges.join(result.key_ranges.get(table.index, ()))
        if table.needs_row_lookup and ranges.count:
            result.key_lookups[table.index] = KeyLookup(frames, ranges, plan.reducers)
    return result


def _persist(frame: DataFrame, until: ExitStack) -> DataFrame:
    until.callback(frame.unpersist)
    return frame.persist(StorageLevel.MEMORY_AND_DISK)


def _collect(outputs: DataFrame) -> Iterator[DriverOutput]:
    """Return what the tasks tell the driver; all else stays on executors."""
    return (unpack_value(row.payload) for row in outputs.where(F.col("kind") == OutputKind.DRIVER.value).collect())


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


def _map_reduce(spark: SparkSession, plan: BatchPlan, writers: WriterFactory) -> DataFrame:
    count = len(plan.feed.shares)
    mapped = spark.range(0, count, 1, max(1, count)).mapInArrow(map_task(plan, writers), OUTPUT_SCHEMA)
    return _reduce(mapped, plan, writers) if any(table.upsert for table in plan.tables) else mapped


def _reduce(outputs: DataFrame, plan: BatchPlan, writers: WriterFactory, *, judged: bool = False) -> DataFrame:
    reducer = F.pmod(F.col("bucket") + F.col("table"), F.lit(plan.reducers))
    shuffled = outputs.repartitionById(plan.reducers, reducer).sortWithinPartitions("table", "bucket")
    return shuffled.mapInArrow(reduce_task(plan, writers, judged=judged), OUTPUT_SCHEMA)
