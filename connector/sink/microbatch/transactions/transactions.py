"""A batch's offsets -> where to end, so that no transaction of the source is cut. One light job before the batch's own.

    records -> per transaction: how many events of each table, at which offsets; from the transaction topic: how many
    there are -> transactions that are not all here -> the first offset of each, where its topic-partition is cut
What a cut leaves of another transaction is not all here either, so cuts are made until nothing changes. What is behind
them comes with a later batch: records are not kept, only what they tell of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import attrs
import structlog
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.errors import RetriableError
from connector.runtime.spark.task_errors import raise_task_errors
from connector.runtime.topic_partitions import TopicPartition
from connector.settings.kafka.transactions import TransactionSettings
from connector.sink.microbatch.transactions.cuts import (
    any_of,
    find_cuts,
    find_last_complete,
    find_repeated,
    find_waiting,
    is_from,
    is_in_partition,
)
from connector.sink.microbatch.transactions.transaction_task import SPARK_SCHEMA, transaction_task
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan

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
        self._counted_until: dict[TopicPartition, int] = {}
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
            at_: max(batch.start.get(at_, 0), min(self._counted_until.get(at_, 0), end))
            for at_, end in batch.end.items()
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
        count = len(plan.assignment.shares)
        tasks = self._spark.range(0, count, 1, max(1, count)).mapInArrow(
            transaction_task(plan, self._settings.topic), SPARK_SCHEMA
        )
        counts = tasks.withColumn("seen", F.lit(float(now)))
        if self._kept is not None:
            kept_from = {at_: batch.start.get(at_, 0) for at_ in self._counted_until}
            counts = counts.unionByName(self._kept.where(is_from(kept_from)))
        counts = counts.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with raise_task_errors():
                return self._cut_batch(batch, counts, now)
        except (Py4JJavaError, PySparkException) as error:
            if self._kept is None:
                raise
            self._forget()
            raise RetriableError(f"transaction metadata was lost with an executor: {error}") from error
        finally:
            counts.unpersist()

    def _cut_batch(self, batch: MicroBatch, counts: DataFrame, now: float) -> CompleteBatch:
        waited, repeated = find_waiting(counts, self._let_through), find_repeated(counts)
        oldest, has_repeated = _look_at(waited, repeated)
        limit = now - self._settings.wait_ms / 1000
        if self._old:
            began = [is_in_partition(place) & (F.col("first") < offset) for place, offset in self._old.items()]
            old = counts.where(any_of(began)).select("id").distinct().withColumn("old", F.lit(1))
            since = F.when(F.col("old").isNotNull(), F.lit(float(limit))).otherwise(F.col("since"))
            waited = waited.join(old, "id", "left").select("id", since.alias("since"))
            oldest = None if oldest is None else waited.agg(F.min("since").alias("since")).collect()[0].since
        if oldest is not None and oldest <= limit:
            self._pass(counts, waited.where(F.col("since") <= limit))
            waited = waited.where(F.col("since") > limit)
            oldest = waited.agg(F.min("since").alias("since")).collect()[0].since
        # Of what lies behind the batch something may be told already; it is not here.
        ends = {at_: end for at_, end in batch.end.items() if self._counted_until.get(at_, 0) > end}
        cuts = find_cuts(counts, waited.select("id"), ends, self._let_through) if oldest is not None or ends else {}
        end = {at_: min(offset, cuts.get(at_, offset)) for at_, offset in batch.end.items()}
        if has_repeated:
            self._release_repeated(repeated, counts.where(is_from(cuts)))
        whole = CompleteBatch(attrs.evolve(batch, end=end), find_last_complete(counts, cuts))
        self._keep(batch, counts, cuts)
        self._due = None if oldest is None else oldest + self._settings.wait_ms / 1000
        self._old = {}
        return whole

    def _pass(self, counts: DataFrame, overdue: DataFrame) -> None:
        """Let transactions through: they cut nothing any more, whatever comes of them."""
        ids = [row.id for row in overdue.orderBy(F.desc("since")).limit(MAX_RELEASED).select("id").collect()]
        first = counts.join(overdue, "id").groupBy("topic", "partition").agg(F.min("first").alias("cut")).collect()
        places = _format_offsets({(row.topic, row.partition): row.cut for row in first})
        self._log.warning("no longer waiting for incomplete transactions", at=places)
        self._release(reversed(ids))

    def _release_repeated(self, repeated: DataFrame, left: DataFrame) -> None:
        """Let through what else comes of transactions that are here, and some of whose events came again.

        Where a connector starts again, the batch may end in the midst of what it sends again: nothing of the source is
        cut by that, and of the rest nobody would know that it is one.
        """
        here = repeated.join(left.select("id").distinct(), "id", "left_anti")
        rows = here.orderBy(F.desc("last")).limit(MAX_RELEASED).select("id").collect()
        self._release(row.id for row in reversed(rows) if row.id not in self._let_through)

    def _release(self, ids: Iterable[str]) -> None:
        self._let_through = [*self._let_through, *ids][-MAX_RELEASED:]

    def _keep(self, batch: MicroBatch, counts: DataFrame, cuts: Mapping[TopicPartition, int]) -> None:
        if not cuts:
            self._kept, self._counted_until = None, {}
            return
        # A checkpoint has no past: else the plan would grow with each batch. One that fails leaves all as it was.
        self._kept = counts.where(is_from(cuts)).localCheckpoint()
        until = {
            **self._counted_until,
            **{at_: max(end, self._counted_until.get(at_, 0)) for at_, end in batch.end.items()},
        }
        self._counted_until = {at_: until[at_] for at_ in cuts}

    def _forget(self) -> None:
        self._kept, self._counted_until, self._due = None, {}, None


def _look_at(waited: DataFrame, repeated: DataFrame) -> tuple[float | None, bool]:
    """Return since when the oldest transaction is waited for, and whether events of any came again."""
    times = waited.select("since", F.lit(False).alias("again"))
    again = repeated.select(F.lit(None).cast("double").alias("since"), F.lit(True).alias("again"))
    found = times.unionByName(again).agg(F.min("since").alias("since"), F.max("again").alias("again")).collect()[0]
    return found.since, bool(found.again)


def _format_offsets(cuts: Mapping[TopicPartition, int]) -> list[str]:
    return [f"{topic}-{partition} offset {offset}" for (topic, partition), offset in sorted(cuts.items())]
