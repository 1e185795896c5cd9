"""A batch's offsets -> where to end, so that no transaction of the source is cut. One light job before the batch's own.

    records -> per transaction: how many events of each table, at which offsets; from the transaction topic: how many
    there are -> transactions that are not all here -> the first offset of each, where its topic-partition is cut
What a cut leaves of another transaction is not all here either, so cuts are made until nothing changes. What is behind
them comes with a later batch: records are not kept, only what they tell of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.pandas.types import from_arrow_schema

from connector.errors import RetriableError
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.spark.task_errors import raise_task_errors
from connector.runtime.topic_partitions import TopicPartition
from connector.settings.kafka.transactions import TransactionSettings
from connector.sink.convert.converters import transaction_converter
from connector.sink.convert.failing_records import readable
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan
from connector.sink.model.task_output import Task
from serde.arrays import column_at
from serde.events.event_kind import TRANSACTION_METADATA_TYPE
from serde.messages import MessageBlock

TRANSACTION_SCHEMA = pa.schema(
    [
        ("ends", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("id", pa.string()),
        ("said", pa.string()),
        ("collection", pa.string()),
        ("with_db", pa.string()),
        ("whole", pa.string()),
        ("count", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("ts_ms", pa.int64()),
    ]
)
SPARK_SCHEMA = from_arrow_schema(TRANSACTION_SCHEMA)
_POSTGRES_ID = r"^(\d+):\d+$"
"""PostgreSQL's ids have the event's own position behind the transaction ("Transaction metadata" of its connector)."""


MAX_RELEASED = 1_000
"""Transactions that were let through and may have a rest to come, the newest; the rest of others is waited for."""


@attrs.frozen
class CompleteBatch:
    """A batch that cuts no transaction, and the last transaction that is complete with it, empty where none is told."""

    batch: MicroBatch
    transaction: str = ""


class Transactions:
    """Cuts the batches of one sink.

    What is told of records behind a cut is kept on executors, with the time at which it was read: so they are not read
    again for this, and each transaction has a time of its own.
    """

    def __init__(
        self, spark: SparkSession, settings: TransactionSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin; nothing is waited for yet. `clock` gives seconds."""
        self._spark, self._settings, self._clock = spark, settings, clock
        self._kept: DataFrame | None = None
        self._told_until: dict[TopicPartition, int] = {}
        self._let_through: list[str] = []
        self._due: float | None = None
        self._old: dict[TopicPartition, int] = {}
        self._log = structlog.get_logger()

    @property
    def overdue(self) -> bool:
        """Whether a transaction has been waited for long enough: a batch up to the same offsets lets it through."""
        return self._due is not None and self._clock() >= self._due

    def stop_waiting(self, before: Mapping[TopicPartition, int]) -> None:
        """Let the next batch pass what is incomplete and began before these offsets, however new it is here."""
        self._old = dict(before)

    def find_unread(self, batch: MicroBatch) -> MicroBatch:
        """Return the part of a batch of which nothing is told yet."""
        start = {
            at_: max(batch.start.get(at_, 0), min(self._told_until.get(at_, 0), end)) for at_, end in batch.end.items()
        }
        return attrs.evolve(batch, start=start)

    def whole(self, batch: MicroBatch, plan: BatchPlan) -> CompleteBatch:
        """Return the batch up to where transactions are complete; `plan` reads the part of it that `find_unread` gives.

        One that stays incomplete for longer than `transaction.wait.ms` is let through, with a warning; others are still
        waited for.

        Raises:
            RetriableError, GapError, FatalError: a task raised it.
        """
        now = self._clock()
        count = len(plan.feed.shares)
        tasks = self._spark.range(0, count, 1, max(1, count)).mapInArrow(
            _transaction_task(plan, self._settings.topic), SPARK_SCHEMA
        )
        told = tasks.withColumn("seen", F.lit(float(now)))
        if self._kept is not None:
            kept_from = {at_: batch.start.get(at_, 0) for at_ in self._told_until}
            told = told.unionByName(self._kept.where(_is_from(kept_from)))
        told = told.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with raise_task_errors():
                return self._cut_batch(batch, told, now)
        except PySparkException as error:
            if self._kept is None:
                raise
            self._forget()
            raise RetriableError(f"transaction metadata was lost with an executor: {error}") from error
        finally:
            told.unpersist()

    def _cut_batch(self, batch: MicroBatch, told: DataFrame, now: float) -> CompleteBatch:
        waited = _find_waiting(told, self._let_through)
        oldest = waited.agg(F.min("since").alias("since")).collect()[0].since
        limit = now - self._settings.wait_ms / 1000
        if self._old:
            began = [_is_in_partition(place) & (F.col("first") < offset) for place, offset in self._old.items()]
            old = told.where(_any_of(began)).select("id").distinct().withColumn("old", F.lit(1))
            since = F.when(F.col("old").isNotNull(), F.lit(float(limit))).otherwise(F.col("since"))
            waited, self._old = waited.join(old, "id", "left").select("id", since.alias("since")), {}
            oldest = None if oldest is None else waited.agg(F.min("since").alias("since")).collect()[0].since
        if oldest is not None and oldest <= limit:
            self._pass(told, waited.where(F.col("since") <= limit))
            waited = waited.where(F.col("since") > limit)
            oldest = waited.agg(F.min("since").alias("since")).collect()[0].since
        # Of what lies behind the batch something may be told already; it is not here.
        ends = {at_: end for at_, end in batch.end.items() if self._told_until.get(at_, 0) > end}
        cuts = _find_cuts(told, waited.select("id"), ends, self._let_through) if oldest is not None or ends else {}
        end = {at_: min(offset, cuts.get(at_, offset)) for at_, offset in batch.end.items()}
        whole = CompleteBatch(attrs.evolve(batch, end=end), _find_last_complete(told, cuts))
        self._keep(batch, told, cuts)
        self._due = None if oldest is None else oldest + self._settings.wait_ms / 1000
        return whole

    def _pass(self, told: DataFrame, overdue: DataFrame) -> None:
        """Let transactions through: they cut nothing any more, whatever comes of them."""
        ids = [row.id for row in overdue.orderBy(F.desc("since")).limit(MAX_RELEASED).select("id").collect()]
        first = told.join(overdue, "id").groupBy("topic", "partition").agg(F.min("first").alias("cut")).collect()
        places = _format_offsets({(row.topic, row.partition): row.cut for row in first})
        self._log.warning("no longer waiting for incomplete transactions", at=places)
        self._let_through = [*self._let_through, *reversed(ids)][-MAX_RELEASED:]

    def _keep(self, batch: MicroBatch, told: DataFrame, cuts: Mapping[TopicPartition, int]) -> None:
        self._kept = None
        if cuts:
            # A checkpoint has no past: else the plan would grow with each batch.
            self._kept = told.where(_is_from(cuts)).localCheckpoint()
            until = {
                **self._told_until,
                **{at_: max(end, self._told_until.get(at_, 0)) for at_, end in batch.end.items()},
            }
            self._told_until = {at_: until[at_] for at_ in cuts}
        else:
            self._told_until = {}

    def _forget(self) -> None:
        self._kept, self._told_until, self._due = None, {}, None


def _format_offsets(cuts: Mapping[TopicPartition, int]) -> list[str]:
    return [f"{topic}-{partition} offset {offset}" for (topic, partition), offset in sorted(cuts.items())]


def _is_from(offsets: Mapping[TopicPartition, int]) -> Column:
    """Tell what begins at these offsets or behind them."""
    return _any_of([_is_in_partition(place) & (F.col("first") >= offset) for place, offset in offsets.items()])


def _is_in_partition(place: TopicPartition) -> Column:
    return (F.col("topic") == place[0]) & (F.col("partition") == place[1])


def _any_of(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))


def _find_waiting(told: DataFrame, let_through: Sequence[str]) -> DataFrame:
    """Return the transactions that are not complete, but those that were let through, and since when they are known."""
    open_ids = _find_incomplete(told)
    if let_through:
        open_ids = open_ids.where(~F.col("id").isin(list(let_through)))
    return told.join(open_ids, "id").groupBy("id").agg(F.min("seen").alias("since"))


def _find_cuts(
    told: DataFrame, open_ids: DataFrame, ends: Mapping[TopicPartition, int], let_through: Sequence[str]
) -> dict[TopicPartition, int]:
    """Return the first offset to leave out, of the topic-partitions where there is one; `ends` are some of them."""
    if let_through:
        told = told.where(~F.col("id").isin(list(let_through)))
    cuts: dict[TopicPartition, int] = {}
    while True:
        first = told.join(open_ids, "id").groupBy("topic", "partition").agg(F.min("first").alias("cut")).collect()
        found = dict(ends)
        for row in first:
            found[row.topic, row.partition] = min(row.cut, found.get((row.topic, row.partition), row.cut))
        if found == cuts:
            return cuts
        cuts = found
        behind = [_is_in_partition(place) & (F.col("last") >= cut) for place, cut in cuts.items()]
        open_ids = told.where(_any_of(behind)).select("id").distinct()


def _find_incomplete(told: DataFrame) -> DataFrame:
    """Return the ids of transactions whose end is not here, or that have fewer events here than their end says."""
    events, ends = told.where(~F.col("ends")), told.where(F.col("ends"))
    endless = events.select("id").distinct().join(ends.select("id").distinct(), "id", "left_anti")
    name = F.explode(F.array_distinct(F.array("collection", "with_db", "whole")))
    named = events.select("id", name.alias("said"), "count")
    here = named.groupBy("id", "said").agg(F.sum("count").alias("here"))
    there = ends.groupBy("id", "said").agg(F.max("count").alias("there"), F.max("whole").alias("read"))
    counted = there.join(here, ["id", "said"], "left")
    # A table that is not read here counts no events, and is not waited for.
    expected = F.col("here").isNotNull() | F.col("read").isNotNull()
    short = counted.where(expected & (F.coalesce("here", F.lit(0)) < F.col("there")))
    return endless.union(short.select("id")).distinct()


def _find_last_complete(told: DataFrame, cuts: Mapping[TopicPartition, int]) -> str:
    """Return the id of the newest end that is not cut off."""
    newest = (
        told.where(F.col("ends") & ~_is_from(cuts))
        .agg(F.max_by("id", F.struct("ts_ms", "first")).alias("id"))
        .collect()
    )
    return str(newest[0].id or "")


def _transaction_task(plan: BatchPlan, topic: str | None) -> Task:
    """Return the task that tells of each transaction what a share of the records has of it."""
    reading = transaction_converter(plan)
    topics = tuple({name for name, _ in plan.ranks})

    def read(run: ConsumerRecords) -> list[pa.RecordBatch]:
        ends = run.topic == topic
        blocks = reading.decode(run.value, "VALUE_CONVERTER", TRANSACTION_METADATA_TYPE if ends else None).blocks
        told = [_read_ends(run, block, topics) if ends else _count_events(run, block, plan) for block in blocks]
        return [made for made in told if made is not None]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for chunk in plan.feed.chunks(number):
                    if chunk.topic == topic:
                        chunk.check_readable()
                    if chunk.unreadable is None:
                        yield from readable(chunk, read)

    return task


def _read_text(fields: pa.StructArray, *paths: str) -> pa.StringArray:
    """Return the first text column that is there, nulls without any."""
    found = (
        column for path in paths if (column := column_at(fields, path)) is not None and pa.types.is_string(column.type)
    )
    return next(found, pa.nulls(len(fields), pa.string()))


def _transaction_ids(column: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(column, _POSTGRES_ID, r"\1")


def _count_events(run: ConsumerRecords, block: MessageBlock, plan: BatchPlan) -> pa.RecordBatch | None:
    """Count the events of each transaction and table; events outside of transactions are in none."""
    fields, prefix = block.fields, plan.events.add_fields_prefix
    ids = _read_text(fields, "transaction.id", f"{prefix}transaction_id")
    if ids.null_count == len(ids):
        return None
    names = ("db", "schema", "table")
    parts = {name: _read_text(fields, f"source.{name}", f"{prefix}{name}").fill_null("") for name in names}
    offsets = run.offset[block.rows]
    joined = {
        "collection": pc.binary_join_element_wise(parts["schema"], parts["table"], "."),
        "with_db": pc.binary_join_element_wise(parts["db"], parts["table"], "."),
        "whole": pc.binary_join_element_wise(parts["db"], parts["schema"], parts["table"], "."),
    }
    table = pa.table({"id": _transaction_ids(ids), **joined, "offset": pa.array(offsets)})
    told = table.filter(pc.is_valid(table["id"]))
    grouped = told.group_by(["id", *joined]).aggregate([("offset", "count"), ("offset", "min"), ("offset", "max")])
    count = len(grouped)
    constant = {"ends": False, "topic": run.topic, "partition": run.partition, "said": None, "ts_ms": None}
    columns = {
        name: pa.repeat(pa.scalar(value, TRANSACTION_SCHEMA.field(name).type), count)
        for name, value in constant.items()
    }
    renamed = {"count": "offset_count", "first": "offset_min", "last": "offset_max"}
    for name in ("id", *joined, *renamed):
        columns[name] = grouped[renamed.get(name, name)].combine_chunks()
    return pa.RecordBatch.from_arrays([columns[field.name] for field in TRANSACTION_SCHEMA], schema=TRANSACTION_SCHEMA)


def _read_ends(run: ConsumerRecords, block: MessageBlock, topics: tuple[str, ...]) -> pa.RecordBatch | None:
    """Return what END events say: a row per transaction and table. `whole` is set for tables that have a topic here.

    Without a transaction, table or number that can be read it says nothing: then the transaction's end is waited for.
    """
    fields = block.fields
    lists = column_at(fields, "data_collections")
    ended = np.asarray(pc.equal(_read_text(fields, "status"), "END").fill_null(False))
    if lists is None or not pa.types.is_list(lists.type) or not pa.types.is_struct(lists.type.value_type):
        return None
    rows = np.flatnonzero(ended)
    chosen = lists.take(pa.array(rows))
    places = rows[np.asarray(pc.list_parent_indices(chosen))]
    items = pc.list_flatten(chosen)
    parents = pa.array(places)
    said = _read_text(items, "data_collection")
    offsets = pa.array(run.offset[block.rows][places])
    known = [text is not None and any(name.endswith(f".{text}") for name in topics) for text in said.to_pylist()]
    columns = {
        "ends": pa.repeat(pa.scalar(True), len(said)),
        "topic": pa.repeat(pa.scalar(run.topic), len(said)),
        "partition": pa.repeat(pa.scalar(run.partition, pa.int32()), len(said)),
        "id": _transaction_ids(_read_text(fields, "id")).take(parents),
        "said": said,
        "collection": pa.nulls(len(said), pa.string()),
        "with_db": pa.nulls(len(said), pa.string()),
        "whole": pc.if_else(pa.array(known, pa.bool_()), said, pa.scalar(None, pa.string())),
        "count": _read_whole(items, "event_count"),
        "first": offsets,
        "last": offsets,
        "ts_ms": _read_whole(fields, "ts_ms").take(parents),
    }
    made = pa.RecordBatch.from_arrays([columns[field.name] for field in TRANSACTION_SCHEMA], schema=TRANSACTION_SCHEMA)
    return made.filter(pc.and_(pc.and_(made["id"].is_valid(), made["said"].is_valid()), made["count"].is_valid()))


def _read_whole(fields: pa.StructArray, path: str) -> pa.Int64Array:
    """Return a column of whole numbers, nulls without any."""
    column = column_at(fields, path)
    if column is None or not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return pa.nulls(len(fields), pa.int64())
    return column.cast(pa.int64())
