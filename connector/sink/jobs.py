"""A batch as a Spark job: map, shuffle by bucket, reduce; and what it brought back to the driver."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Mapping, Sequence

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.scan import release
from connector.iceberg.table import Table
from connector.sink import parcels
from connector.sink.failures import of_tasks
from connector.sink.held import held
from connector.sink.patch import patched
from connector.sink.plan import BatchPlan, Letter, Need, TablePlan, Tally
from connector.sink.recall import recalled
from connector.sink.tasks import map_task, reduce_task
from connector.sink.truncates import Truncate

EVENTS_PER_REDUCER = 50_000
"""Below this many events per task, a further task costs more than it gains."""

EVENTS_PER_BUCKET = 200_000
"""A reduce task holds one bucket in memory at a time."""

_ASKING = (parcels.RECALL, parcels.PATCH, parcels.MOVED)
_STAYING = (*_ASKING, parcels.LAST)


@attrs.frozen(eq=False)
class Result:
    """What a job brought back; `files` by table index. With needs, the files are of no use and have to go.

    The same is true with tables in `open`: their events leave values out that the table may hold, so they need patches.
    `truncates` are those of each table.
    """

    files: dict[int, list[bytes]]
    needs: list[Need]
    letters: list[Letter]
    tally: Tally
    open: frozenset[int] = frozenset()
    truncates: Mapping[int, tuple[Truncate, ...]] = attrs.field(factory=dict)


def sizes(events: int, parallelism: int) -> tuple[int, int]:
    """Give (reducers, buckets) for a batch of about so many events; buckets are a multiple of reducers."""
    reducers = max(1, min(parallelism, math.ceil(events / EVENTS_PER_REDUCER)))
    return reducers, reducers * max(1, math.ceil(events / (reducers * EVENTS_PER_BUCKET)))


def run(spark: SparkSession, plan: BatchPlan, tables: Sequence[Table] = ()) -> Result:
    """Run one batch: files are written, nothing is committed. `tables` are those of the plan, by index.

    Only descriptions come back to the driver: of files, shapes and unusable records, the last at most
    `plan.max_letters` + 1 per task.

    Raises:
        RetriableError, GapError, FatalError: a task raised it (the broker, the schema registry).
    """
    with of_tasks():
        return _run(spark, plan, tables)


def _run(spark: SparkSession, plan: BatchPlan, tables: Sequence[Table]) -> Result:
    if not any(table.recalls or table.patches for table in plan.tables):
        return _result(_tasks(spark, plan).collect())
    # What only the table knows (rows of tombstones, unsent values) is looked up once the rest is through.
    parcelled = _tasks(spark, plan).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        result = _result(parcelled.where(~F.col("kind").isin(*_STAYING)).collect())
        for table in plan.tables if not result.needs and not result.open else ():
            looked_up = _looked_up(parcelled, plan, table, tables)
            if looked_up:
                result.files.setdefault(table.index, []).extend(looked_up)
        return result
    finally:
        parcelled.unpersist()


def _looked_up(parcelled: DataFrame, plan: BatchPlan, table: TablePlan, tables: Sequence[Table]) -> list[bytes]:
    """Carry out the joins with a table that its events ask for."""
    own = parcelled.where(F.col("table") == table.index)
    found = {row.kind for row in own.select("kind").where(F.col("kind").isin(*_ASKING)).distinct().collect()}
    if not found:
        return []
    java = tables[table.index]
    rows = held(parcelled.sparkSession, java, table)
    try:
        made: list[bytes] = []
        if parcels.RECALL in found:
            asked = own.where(F.col("kind") == parcels.RECALL)
            made += _result(recalled(asked, table, rows).collect()).files.get(table.index, [])
        if parcels.PATCH in found:
            moved = parcels.MOVED in found
            frame = patched(own, table, rows, moved=moved, dedup_column=plan.dedup_column)
            made += _result(frame.collect()).files.get(table.index, [])
        return made
    finally:
        release(parcelled.sparkSession, java)


def _tasks(spark: SparkSession, plan: BatchPlan) -> DataFrame:
    count = len(plan.feed.shares)
    mapped = spark.range(0, count, 1, max(1, count)).mapInArrow(map_task(plan), parcels.SCHEMA)
    if any(table.mode == "upsert" for table in plan.tables):
        reducer = F.pmod(F.col("bucket"), F.lit(plan.reducers))
        shuffled = mapped.repartitionById(plan.reducers, reducer).sortWithinPartitions("table", "bucket")
        mapped = shuffled.mapInArrow(reduce_task(plan), parcels.SCHEMA)
    return mapped


def _result(rows: Iterable[Row]) -> Result:
    result = Result({}, [], [], Tally())
    tally, open_tables, truncates = Tally(), set[int](), dict[int, tuple[Truncate, ...]]()
    for row in rows:
        payload = bytes(row.payload)
        if row.kind == parcels.FILE:
            result.files.setdefault(row.table, []).append(payload)
        elif row.kind == parcels.TRUNCATES:
            truncates[row.table] = (*truncates.get(row.table, ()), *pickle.loads(payload))  # noqa: S301
        elif row.kind == parcels.OPEN:
            open_tables.add(row.table)
        elif row.kind == parcels.NEED:
            result.needs.append(pickle.loads(payload))  # noqa: S301 - made by our own tasks
        elif row.kind == parcels.LETTER:
            result.letters.extend(pickle.loads(payload))  # noqa: S301
        elif row.kind == parcels.TALLY:
            tally += pickle.loads(payload)  # noqa: S301
    return attrs.evolve(result, tally=tally, open=frozenset(open_tables), truncates=truncates)
