"""A batch as a Spark job: map, shuffle by bucket, reduce; and what it brought back to the driver."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import reduce

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.table_reader import release_reads
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.destinations.iceberg.lookups.late_events import drop_late_events
from connector.sink.destinations.iceberg.lookups.tombstones import mark_deleted_rows
from connector.sink.destinations.iceberg.lookups.unavailable_values import fill_from_table
from connector.sink.destinations.iceberg.snapshot_rows import read_table_rows
from connector.sink.destinations.iceberg.write_modes.scd2 import update_histories
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.map_task import map_task, reduce_task
from connector.sink.model import task_output
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult, KeyLookup, SourceProgress
from connector.sink.model.truncates import Truncate

EVENTS_PER_REDUCER = 50_000
"""Below this many events per task, a further task costs more than it gains."""

EVENTS_PER_BUCKET = 200_000
"""A reduce task holds one bucket in memory at a time."""

_LOOKUP_KINDS = (task_output.TOMBSTONES, task_output.UNAVAILABLE_ROWS, task_output.OLD_KEY_ROWS)
_EXECUTOR_KINDS = (
    *_LOOKUP_KINDS,
    task_output.LAST_ROWS,
    task_output.KEYS,
    task_output.NEW_VERSIONS,
    task_output.VERSION_KEYS,
    task_output.LATE_CANDIDATES,
    task_output.KEY_CHANGES,
)


def count_reducers(events: int, parallelism: int) -> int:
    """Give how many tasks write a batch of about so many events."""
    return max(1, min(parallelism, math.ceil(events / EVENTS_PER_REDUCER)))


def count_buckets(events: float, reducers: int) -> int:
    """Give into how many parts the keys of a table with about so many events are split.

    A table with few is one task's work, as files cost more than their rows then; tasks share a larger one evenly.
    """
    if events <= EVENTS_PER_REDUCER:
        return 1
    return reducers * max(1, math.ceil(events / (reducers * EVENTS_PER_BUCKET)))


def run_job(
    spark: SparkSession, plan: BatchPlan, tables: Sequence[Table] = (), deleted: DeletedKeysTable | None = None
) -> JobResult:
    """Run one batch: files are written, nothing is committed. `tables` are those of the plan, by index.

    Only descriptions come back to the driver: of files, shapes and unusable records, the last at most
    `plan.max_letters` + 1 per task.

    Raises:
        RetriableError, GapError, FatalError: a task raised it (the broker, the schema registry).
    """
    with raise_task_errors(), ExitStack() as kept:
        result = _run_with_lookups(spark, plan, tables, deleted, kept)
        return attrs.evolve(result, kept=kept.pop_all())


def _run_with_lookups(
    spark: SparkSession, plan: BatchPlan, tables: Sequence[Table], deleted: DeletedKeysTable | None, kept: ExitStack
) -> JobResult:
    if not any(table.needs_lookup for table in plan.tables):
        return _read_result(_map_reduce(spark, plan).collect())
    # What only the table knows (rows of tombstones, unsent values, where rows are) is looked up once the rest is
    # through. What one job hands to the next is kept: made again, it would write its files again.
    parcelled = _persist(_map_reduce(spark, plan), kept)
    result = _collect(parcelled)
    if result.suspects and result.ready:
        # What stands of late changes goes on with the rest. One job for all tables: each has few rows to look up.
        stand = [_drop_late(parcelled, plan, index, n, tables, deleted, kept) for index, n in result.suspects.items()]
        frame = _persist(_reduce(reduce(DataFrame.unionAll, stand), plan, judged=True), kept)
        result = result.merge(_collect(frame))
        parcelled = parcelled.unionAll(frame)
    for table in plan.tables if result.ready else ():
        own = parcelled.where(F.col("table") == table.index)
        frames = [own]
        spans = KeyRanges.joined(result.spans.get(table.index, ()))
        for frame in _join_lookups(own, plan, table, tables, spans, kept):
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


def _collect(parcelled: DataFrame) -> JobResult:
    return _read_result(parcelled.where(~F.col("kind").isin(*_EXECUTOR_KINDS)).collect())


def _drop_late(
    parcelled: DataFrame,
    plan: BatchPlan,
    index: int,
    ranges: KeyRanges,
    tables: Sequence[Table],
    deleted: DeletedKeysTable | None,
    kept: ExitStack,
) -> DataFrame:
    """Give the parcels of what stands of a table's suspects."""
    spark, table = parcelled.sparkSession, plan.tables[index]
    own = parcelled.where(F.col("table") == index)
    asked, gone = own.where(F.col("kind") == task_output.LATE_CANDIDATES), None
    if deleted is not None and not table.keep_deletes:
        kept.callback(deleted.close)
        gone = deleted.of(table.layout.name)
    if table.numbered:
        # Of documents that are there their versions decide; what else their keys came with goes on with them.
        stand = drop_late_events(asked, ranges.count, plan, table, None, gone)
        return stand.unionAll(own.where(F.col("kind") == task_output.KEY_CHANGES))
    kept.callback(release_reads, spark, tables[index])
    rows = read_table_rows(spark, tables[index], table, ranges.filter(table.layout.schema))
    return drop_late_events(asked, ranges.count, plan, table, rows, gone)


def _join_lookups(
    own: DataFrame,
    plan: BatchPlan,
    table: TablePlan,
    tables: Sequence[Table],
    spans: KeyRanges,
    kept: ExitStack,
) -> Iterator[DataFrame]:
    """Give the joins with a table that its events ask for; `spans` are set for one that keeps history."""
    spark = own.sparkSession
    if spans.count:
        kept.callback(release_reads, spark, tables[table.index])
        yield _persist(update_histories(spark, tables[table.index], table, own, spans, plan.reducers), kept)
    if not (table.needs_tombstone_lookup or table.patches):
        return
    kinds = {row.kind for row in own.select("kind").where(F.col("kind").isin(*_LOOKUP_KINDS)).distinct().collect()}
    if not kinds:
        return
    kept.callback(release_reads, spark, tables[table.index])
    rows = read_table_rows(spark, tables[table.index], table)
    if task_output.TOMBSTONES in kinds:
        yield _persist(mark_deleted_rows(own.where(F.col("kind") == task_output.TOMBSTONES), table, rows), kept)
    if task_output.UNAVAILABLE_ROWS in kinds:
        moved = task_output.OLD_KEY_ROWS in kinds
        yield _persist(fill_from_table(own, table, rows, moved=moved, dedup_column=plan.dedup_column), kept)


def _map_reduce(spark: SparkSession, plan: BatchPlan) -> DataFrame:
    count = len(plan.feed.shares)
    mapped = spark.range(0, count, 1, max(1, count)).mapInArrow(map_task(plan), task_output.OUTPUT_SCHEMA)
    return _reduce(mapped, plan) if any(table.mode == "upsert" for table in plan.tables) else mapped


def _reduce(parcelled: DataFrame, plan: BatchPlan, *, judged: bool = False) -> DataFrame:
    reducer = F.pmod(F.col("bucket") + F.col("table"), F.lit(plan.reducers))
    shuffled = parcelled.repartitionById(plan.reducers, reducer).sortWithinPartitions("table", "bucket")
    return shuffled.mapInArrow(reduce_task(plan, judged=judged), task_output.OUTPUT_SCHEMA)


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
