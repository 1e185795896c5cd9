"""A batch as a Spark job: map, shuffle by bucket, reduce; and what it brought back to the driver."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import TypeVar

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.table_reader import release
from connector.iceberg.state.deleted_keys_table import DeletedKeys
from connector.runtime.spark.task_errors import of_tasks
from connector.sink.destinations.iceberg.lookups.late_events import standing
from connector.sink.destinations.iceberg.lookups.snapshot_rows import held
from connector.sink.destinations.iceberg.lookups.tombstones import recalled
from connector.sink.destinations.iceberg.lookups.unavailable_values import patched
from connector.sink.destinations.iceberg.write_modes.row_lookup import Asked
from connector.sink.destinations.iceberg.write_modes.scd2 import histories
from connector.sink.fold.watermarks import Seen, together
from connector.sink.job.map_task import map_task, reduce_task
from connector.sink.model import task_output
from connector.sink.model.plan import BatchPlan, Letter, Need, TablePlan, Tally
from connector.sink.model.truncates import Truncate

T = TypeVar("T")

EVENTS_PER_REDUCER = 50_000
"""Below this many events per task, a further task costs more than it gains."""

EVENTS_PER_BUCKET = 200_000
"""A reduce task holds one bucket in memory at a time."""

_ASKING = (task_output.RECALL, task_output.PATCH, task_output.MOVED)
_STAYING = (
    *_ASKING,
    task_output.LAST,
    task_output.KEYS,
    task_output.VERSIONS,
    task_output.LOOKUP,
    task_output.SUSPECT,
    task_output.ELSEWHERE,
)


@attrs.frozen(eq=False)
class Result:
    """What a job brought back; `files` by table index. With needs, the files are of no use and have to go.

    The same is true with tables in `open`: their events leave values out that the table may hold, so they need patches.
    `truncates` are those of each table, `ranges` where its keys lie whose rows are looked for (`asked`, with the frames
    that have the keys; they are there until `kept` is closed). `held` are tables whose rows were looked up. `seen`
    tells how far sources came, `suspects` where keys lie that may be late, `deleted` are files of the deleted keys.
    """

    files: dict[int, list[bytes]]
    needs: list[Need]
    letters: list[Letter]
    tally: Tally
    open: frozenset[int] = frozenset()
    truncates: Mapping[int, tuple[Truncate, ...]] = attrs.field(factory=dict)
    ranges: dict[int, list[KeyRanges]] = attrs.field(factory=dict)
    spans: dict[int, list[KeyRanges]] = attrs.field(factory=dict)
    asked: dict[int, Asked] = attrs.field(factory=dict)
    held: set[int] = attrs.field(factory=set)
    kept: ExitStack = attrs.field(factory=ExitStack)
    seen: tuple[Seen, ...] = ()
    suspects: Mapping[int, KeyRanges] = attrs.field(factory=dict)
    deleted: tuple[bytes, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the tables were as the events need them."""
        return not self.needs and not self.open

    def with_(self, other: Result) -> Result:
        """Give it with what a further job for the same batch brought back."""
        return attrs.evolve(
            self,
            files=_together(self.files, other.files),
            ranges=_together(self.ranges, other.ranges),
            spans=_together(self.spans, other.spans),
            tally=self.tally + other.tally,
            open=self.open | other.open,
            deleted=(*self.deleted, *other.deleted),
        )


def _together(one: Mapping[int, list[T]], other: Mapping[int, list[T]]) -> dict[int, list[T]]:
    return {index: [*one.get(index, []), *other.get(index, [])] for index in {**one, **other}}


def reducers(events: int, parallelism: int) -> int:
    """Give how many tasks write a batch of about so many events."""
    return max(1, min(parallelism, math.ceil(events / EVENTS_PER_REDUCER)))


def buckets(events: float, reducers: int) -> int:
    """Give into how many parts the keys of a table with about so many events are split.

    A table with few is one task's work, as files cost more than their rows then; tasks share a larger one evenly.
    """
    if events <= EVENTS_PER_REDUCER:
        return 1
    return reducers * max(1, math.ceil(events / (reducers * EVENTS_PER_BUCKET)))


def run(
    spark: SparkSession, plan: BatchPlan, tables: Sequence[Table] = (), deleted: DeletedKeys | None = None
) -> Result:
    """Run one batch: files are written, nothing is committed. `tables` are those of the plan, by index.

    Only descriptions come back to the driver: of files, shapes and unusable records, the last at most
    `plan.max_letters` + 1 per task.

    Raises:
        RetriableError, GapError, FatalError: a task raised it (the broker, the schema registry).
    """
    with of_tasks(), ExitStack() as kept:
        result = _run(spark, plan, tables, deleted, kept)
        return attrs.evolve(result, kept=kept.pop_all())


def _run(
    spark: SparkSession, plan: BatchPlan, tables: Sequence[Table], deleted: DeletedKeys | None, kept: ExitStack
) -> Result:
    if not any(table.looks_up for table in plan.tables):
        return _result(_tasks(spark, plan).collect())
    # What only the table knows (rows of tombstones, unsent values, where rows are) is looked up once the rest is
    # through. What one job hands to the next is kept: made again, it would write its files again.
    parcelled = _kept(_tasks(spark, plan), kept)
    result = _collected(parcelled)
    if result.suspects and result.ready:
        # What stands of late changes goes on with the rest. One job for all tables: each has few rows to look up.
        stand = [_standing(parcelled, plan, index, n, tables, deleted, kept) for index, n in result.suspects.items()]
        frame = _kept(_reduced(reduce(DataFrame.unionAll, stand), plan, judged=True), kept)
        result = result.with_(_collected(frame))
        parcelled = parcelled.unionAll(frame)
    for table in plan.tables if result.ready else ():
        own = parcelled.where(F.col("table") == table.index)
        frames = [own]
        spans = KeyRanges.joined(result.spans.get(table.index, ()))
        for frame in _looked_up(own, plan, table, tables, spans, kept):
            result = result.with_(_result(frame.where(F.col("kind") != task_output.KEYS).collect()))
            result.held.add(table.index)
            frames.append(frame)
        ranges = KeyRanges.joined(result.ranges.get(table.index, ()))
        if table.finds and ranges.count:
            result.asked[table.index] = Asked(frames, ranges, plan.reducers)
    return result


def _kept(frame: DataFrame, until: ExitStack) -> DataFrame:
    until.callback(frame.unpersist)
    return frame.persist(StorageLevel.MEMORY_AND_DISK)


def _collected(parcelled: DataFrame) -> Result:
    return _result(parcelled.where(~F.col("kind").isin(*_STAYING)).collect())


def _standing(
    parcelled: DataFrame,
    plan: BatchPlan,
    index: int,
    ranges: KeyRanges,
    tables: Sequence[Table],
    deleted: DeletedKeys | None,
    kept: ExitStack,
) -> DataFrame:
    """Give the parcels of what stands of a table's suspects."""
    spark, table = parcelled.sparkSession, plan.tables[index]
    own = parcelled.where(F.col("table") == index)
    asked, gone = own.where(F.col("kind") == task_output.SUSPECT), None
    if deleted is not None and not table.keep_deletes:
        kept.callback(deleted.close)
        gone = deleted.of(table.layout.name)
    if table.numbered:
        # Of documents that are there their versions decide; what else their keys came with goes on with them.
        stand = standing(asked, ranges.count, plan, table, None, gone)
        return stand.unionAll(own.where(F.col("kind") == task_output.ELSEWHERE))
    kept.callback(release, spark, tables[index])
    rows = held(spark, tables[index], table, ranges.filter(table.layout.schema))
    return standing(asked, ranges.count, plan, table, rows, gone)


def _looked_up(
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
        kept.callback(release, spark, tables[table.index])
        yield _kept(histories(spark, tables[table.index], table, own, spans, plan.reducers), kept)
    if not (table.recalls or table.patches):
        return
    kinds = {row.kind for row in own.select("kind").where(F.col("kind").isin(*_ASKING)).distinct().collect()}
    if not kinds:
        return
    kept.callback(release, spark, tables[table.index])
    rows = held(spark, tables[table.index], table)
    if task_output.RECALL in kinds:
        yield _kept(recalled(own.where(F.col("kind") == task_output.RECALL), table, rows), kept)
    if task_output.PATCH in kinds:
        moved = task_output.MOVED in kinds
        yield _kept(patched(own, table, rows, moved=moved, dedup_column=plan.dedup_column), kept)


def _tasks(spark: SparkSession, plan: BatchPlan) -> DataFrame:
    count = len(plan.feed.shares)
    mapped = spark.range(0, count, 1, max(1, count)).mapInArrow(map_task(plan), task_output.SCHEMA)
    return _reduced(mapped, plan) if any(table.mode == "upsert" for table in plan.tables) else mapped


def _reduced(parcelled: DataFrame, plan: BatchPlan, *, judged: bool = False) -> DataFrame:
    reducer = F.pmod(F.col("bucket") + F.col("table"), F.lit(plan.reducers))
    shuffled = parcelled.repartitionById(plan.reducers, reducer).sortWithinPartitions("table", "bucket")
    return shuffled.mapInArrow(reduce_task(plan, judged=judged), task_output.SCHEMA)


def _result(rows: Iterable[Row]) -> Result:
    result = Result({}, [], [], Tally())
    tally, open_tables, truncates = Tally(), set[int](), dict[int, tuple[Truncate, ...]]()
    suspects, seen, deleted = defaultdict[int, list[KeyRanges]](list), list[Seen](), list[bytes]()
    for row in rows:
        payload = bytes(row.payload)
        if row.kind == task_output.FILE:
            result.files.setdefault(row.table, []).append(payload)
        elif row.kind == task_output.TRUNCATES:
            truncates[row.table] = (*truncates.get(row.table, ()), *pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.DELETED:
            deleted.append(payload)
        elif row.kind == task_output.SEEN:
            seen.extend(pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.ASIDE:
            suspects[row.table].append(pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.RANGES:
            result.ranges.setdefault(row.table, []).append(task_output.value(payload))
        elif row.kind == task_output.SPANS:
            result.spans.setdefault(row.table, []).append(task_output.value(payload))
        elif row.kind == task_output.OPEN:
            open_tables.add(row.table)
        elif row.kind == task_output.NEED:
            result.needs.append(pickle.loads(payload))  # noqa: S301 - made by our own tasks
        elif row.kind == task_output.LETTER:
            result.letters.extend(pickle.loads(payload))  # noqa: S301
        elif row.kind == task_output.TALLY:
            tally += pickle.loads(payload)  # noqa: S301
    return attrs.evolve(
        result,
        tally=tally,
        open=frozenset(open_tables),
        truncates=truncates,
        seen=together(seen),
        suspects={index: KeyRanges.joined(parts) for index, parts in suspects.items()},
        deleted=tuple(deleted),
    )
