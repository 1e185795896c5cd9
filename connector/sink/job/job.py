"""A batch as a Spark job: map, shuffle by bucket, reduce; and what it brought back to the driver."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import reduce

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.map_task import map_task, reduce_task
from connector.sink.model import task_output
from connector.sink.model.destination import Lookups, TableLookup, WriterFactory
from connector.sink.model.plan import BatchPlan
from connector.sink.model.result import JobResult, KeyLookup, SourceProgress
from connector.sink.model.truncates import Truncate

EVENTS_PER_REDUCER = 50_000
"""Below this many events per task, a further task costs more than it gains."""

EVENTS_PER_BUCKET = 200_000
"""A reduce task holds one bucket in memory at a time."""

_EXECUTOR_KINDS = (
    task_output.TOMBSTONES,
    task_output.UNAVAILABLE_ROWS,
    task_output.OLD_KEY_ROWS,
    task_output.LAST_ROWS,
    task_output.KEYS,
    task_output.NEW_VERSIONS,
    task_output.VERSION_KEYS,
    task_output.LATE_CANDIDATES,
    task_output.KEY_CHANGES,
)


def count_reducers(events: int, parallelism: int) -> int:
    """Return how many tasks write a batch of about so many events."""
    return max(1, min(parallelism, math.ceil(events / EVENTS_PER_REDUCER)))


def count_buckets(events: float, reducers: int) -> int:
    """Give into how many parts the keys of a table with about so many events are split.

    A table with few is one task's work, as files cost more than their rows then; tasks share a larger one evenly.
    """
    if events <= EVENTS_PER_REDUCER:
        return 1
    return reducers * max(1, math.ceil(events / (reducers * EVENTS_PER_BUCKET)))


def run_job(spark: SparkSession, plan: BatchPlan, writers: WriterFactory, lookups: Lookups | None = None) -> JobResult:
    """Run one batch: its rows are written, nothing is committed.

    Only descriptions come back to the driver: of files, schemas and unusable records, the last at most
    `plan.max_letters` + 1 per task.

    Raises:
        RetriableError, GapError, FatalError: a task raised it (the broker, the schema registry).
    """
    with raise_task_errors(), ExitStack() as kept:
        result = _run_with_lookups(spark, plan, writers, lookups or Lookups(), kept)
        return attrs.evolve(result, kept=kept.pop_all())


def _run_with_lookups(
    spark: SparkSession, plan: BatchPlan, writers: WriterFactory, lookups: Lookups, kept: ExitStack
) -> JobResult:
    if not any(table.needs_lookup for table in plan.tables):
        return _read_result(_map_reduce(spark, plan, writers).collect())
    # What only the table knows (rows of tombstones, unavailable values, where rows are) is looked up once the rest is
    # through. What one job hands to the next is persisted: computed again, it would write its files again.
    outputs = _persist(_map_reduce(spark, plan, writers), kept)
    result = _collect(outputs)
    late = list(_drop_late(outputs, plan, lookups.late_events, result, kept)) if result.ready else []
    if late:
        # Late candidates that are not late go on with the rest. One job for all tables: each has few rows to look up.
        frame = _persist(_reduce(reduce(DataFrame.unionAll, late), plan, writers, judged=True), kept)
        result = result.merge(_collect(frame))
        outputs = outputs.unionAll(frame)
    for table in plan.tables if result.ready else ():
        own = outputs.where(F.col("table") == table.index)
        frames = [own]
        for lookup in lookups.joins:
            if not lookup.applies(table, result):
                continue
            for joined in lookup.run(own, table, result, kept):
                frame = _persist(joined, kept)
                result = result.merge(_read_result(frame.where(F.col("kind") != task_output.KEYS).collect()))
                result.held.add(table.index)
                frames.append(frame)
        ranges = KeyRanges.joined(result.ranges.get(table.index, ()))
        if table.needs_row_lookup and ranges.count:
            result.asked[table.index] = KeyLookup(frames, ranges, plan.reducers)
    return result


def _persist(frame: DataFrame, until: ExitStack) -> DataFrame:
    until.callback(frame.unpersist)
    return frame.persist(StorageLevel.MEMORY_AND_DISK)


def _collect(outputs: DataFrame) -> JobResult:
    return _read_result(outputs.where(~F.col("kind").isin(*_EXECUTOR_KINDS)).collect())


def _drop_late(
    outputs: DataFrame, plan: BatchPlan, lookup: TableLookup | None, result: JobResult, kept: ExitStack
) -> Iterator[DataFrame]:
    """Return the late candidates of all tables that turned out not to be late."""
    for table in plan.tables if lookup is not None else ():
        if lookup is not None and lookup.applies(table, result):
            yield from lookup.run(outputs.where(F.col("table") == table.index), table, result, kept)


def _map_reduce(spark: SparkSession, plan: BatchPlan, writers: WriterFactory) -> DataFrame:
    count = len(plan.feed.shares)
    mapped = spark.range(0, count, 1, max(1, count)).mapInArrow(map_task(plan, writers), task_output.OUTPUT_SCHEMA)
    return _reduce(mapped, plan, writers) if any(table.mode == "upsert" for table in plan.tables) else mapped


def _reduce(outputs: DataFrame, plan: BatchPlan, writers: WriterFactory, *, judged: bool = False) -> DataFrame:
    reducer = F.pmod(F.col("bucket") + F.col("table"), F.lit(plan.reducers))
    shuffled = outputs.repartitionById(plan.reducers, reducer).sortWithinPartitions("table", "bucket")
    return shuffled.mapInArrow(reduce_task(plan, writers, judged=judged), task_output.OUTPUT_SCHEMA)


def _read_result(rows: Iterable[Row]) -> JobResult:
    result = JobResult({}, [], [], TaskMetrics())
    metrics, open_tables, truncates = TaskMetrics(), set[int](), dict[int, tuple[Truncate, ...]]()
    suspects, seen, deleted = defaultdict[int, list[KeyRanges]](list), list[SourceProgress](), list[bytes]()
    for row in rows:
        payload = bytes(row.payload)
        if row.kind == task_output.FILE:
            result.files.setdefault(row.table, []).append(payload)
        elif row.kind == task_output.TRUNCATES:
            truncates[row.table] = (*truncates.get(row.table, ()), *pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.DELETED_KEYS:
            deleted.append(payload)
        elif row.kind == task_output.PROGRESS:
            seen.extend(pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.LATE_RANGES:
            suspects[row.table].append(pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.KEY_RANGES:
            result.ranges.setdefault(row.table, []).append(task_output.unpack_value(payload))
        elif row.kind == task_output.VERSION_RANGES:
            result.spans.setdefault(row.table, []).append(task_output.unpack_value(payload))
        elif row.kind == task_output.UNAVAILABLE_SEEN:
            open_tables.add(row.table)
        elif row.kind == task_output.SCHEMA_CHANGE:
            result.needs.append(pickle.loads(payload))  # noqa: S301 - made by our own tasks
        elif row.kind == task_output.DEAD_LETTERS:
            result.letters.extend(pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.METRICS:
            metrics += pickle.loads(payload)  # noqa: S301
    return attrs.evolve(
        result,
        metrics=metrics,
        open=frozenset(open_tables),
        truncates=truncates,
        seen=merge_progress(seen),
        suspects={index: KeyRanges.joined(parts) for index, parts in suspects.items()},
        deleted=tuple(deleted),
    )
