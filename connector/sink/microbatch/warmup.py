"""A few real records -> the map task, its outcome thrown away: the first batch finds everything warm.

The first pass of a process over Kafka, Arrow and Python costs seconds of class loading and compiling; they are spent
beside the opening of catalog and tables instead.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from typing import Protocol

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connector.kafka.consumer import PartitionAssignment, assign_ranges
from connector.kafka.consumer.record_sizes import RecordSizeSampler
from connector.runtime.lifecycle import start_thread
from connector.settings import SinkSettings
from connector.sink.job.spark_job import SparkJob
from connector.sink.microbatch.size_estimates import ByteLimit
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.model.destination import TaskWriter
from connector.sink.model.plan import BatchPlan

MAX_RECORDS, MAX_PARTITIONS = 8_000, 4
"""How many records are read at most, and of how many topic-partitions: enough to learn how they are laid out.

The first batch waits for it: 60,000 took 0.3 s of CPU more, and spared the first batch less than 0.1 s.
"""

MAX_BYTES = 64 * 1024**2
"""And about how many bytes of them."""

_GIVE_UP_S = 5.0
"""So long the end of a job that was given up is waited for; what asks silent brokers by then ends in the background."""
_LOOK_S = 0.1


class WarmUp(Protocol):
    """A warm-up beside what comes next."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end, at most so long; tell whether it has ended."""

    def close(self) -> None:
        """Give it up where it has not ended: brokers that have gone meanwhile would be asked for minutes."""


class WarmUpBeside:
    """A `WarmUp` in a thread of its own; its Spark job can be given up."""

    def __init__(self, spark: SparkSession, settings: SinkSettings, cluster_state: ClusterState) -> None:
        """Begin."""
        self._spark, self._group = spark, f"warm-up-{uuid.uuid4()}"
        self._ended = threading.Event()
        start_thread(lambda: self._work(settings, cluster_state), "warm-up")

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end."""
        return self._ended.wait(timeout_s)

    def close(self) -> None:
        """Give it up, by a thread with a connection of its own to the JVM: a signal may have cut a call off here."""
        if not self._ended.is_set():
            start_thread(self._cancel, "cool-down")
            self._ended.wait(_GIVE_UP_S)

    def _cancel(self) -> None:
        """Cancel its job, which may be about to begin."""
        end, context = time.monotonic() + _GIVE_UP_S, self._spark.sparkContext
        with suppress(Py4JError, OSError):  # a JVM that is gone runs nothing
            while not self._ended.is_set() and time.monotonic() < end:
                if context.statusTracker().getJobIdsForGroup(self._group):
                    context.cancelJobGroup(self._group)
                self._ended.wait(_LOOK_S)

    def _work(self, settings: SinkSettings, cluster_state: ClusterState) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, "warm-up", interruptOnCancel=True)
            warm_up(self._spark, settings, cluster_state)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing depends on it: the first batch will meet it too
            structlog.get_logger().info("warm-up failed", reason=type(error).__name__)
        finally:
            self._ended.set()


class _NoWriters:
    """The writers of a job without tables."""

    follows_keys = False

    def open(self, plan: BatchPlan, label: str) -> TaskWriter:
        """Refuse: there is nothing to write."""
        raise AssertionError(f"{plan.label}, {label}: a plan without tables writes nothing")


def warm_up(spark: SparkSession, settings: SinkSettings, cluster_state: ClusterState) -> None:
    """Run a job over the newest records of the topics."""
    held = {at: end - cluster_state.beginnings[at] for at, end in cluster_state.ends.items()}
    largest = sorted(held, key=lambda at: held[at], reverse=True)[:MAX_PARTITIONS]
    ends = {at: cluster_state.ends[at] for at in largest}
    start = {at: max(cluster_state.beginnings[at], end - MAX_RECORDS // MAX_PARTITIONS) for at, end in ends.items()}
    ends = ByteLimit(min(MAX_BYTES, settings.batch.max_bytes), RecordSizeSampler(settings.kafka).at).end(start, ends)
    records = assign_ranges(settings.kafka, start, ends, spark.sparkContext.defaultParallelism)
    SparkJob(spark).run(_plan_without_tables(settings, cluster_state, records), _NoWriters())


def _plan_without_tables(
    settings: SinkSettings, cluster_state: ClusterState, records: PartitionAssignment
) -> BatchPlan:
    """Return a plan that has no table yet: records are decoded, and nothing is written."""
    rule = settings.table
    return BatchPlan(
        label="warm-up",
        events=settings.events,
        dedup_column=rule.dedup_column,
        op_field=rule.op_field,
        excluded_columns=frozenset(rule.excluded_columns),
        evolve=True,
        tables=(),
        routes={},
        refused={},
        ranks={at: rank for rank, at in enumerate(sorted(cluster_state.ends))},
        assignment=records,
        reducers=1,
        max_letters=0,
    )
