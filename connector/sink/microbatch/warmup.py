"""A few real records -> the map task, its outcome thrown away: the first batch finds everything warm.

The first pass of a process over Kafka, Arrow and Python costs seconds of class loading and compiling; they are spent
beside the opening of catalog and tables instead.
"""

from __future__ import annotations

import structlog
from pyspark.sql import SparkSession

from connector.kafka.consumer import PartitionAssignment, assign_ranges
from connector.kafka.consumer.record_sizes import RecordSizeSampler
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


class _NoWriters:
    """The writers of a job without tables."""

    follows_keys = False

    def open(self, plan: BatchPlan, label: str) -> TaskWriter:
        """Refuse: there is nothing to write."""
        raise AssertionError(f"{plan.label}, {label}: a plan without tables writes nothing")


def warm_up(spark: SparkSession, settings: SinkSettings, seen: ClusterState) -> None:
    """Run a job over the newest records of the topics; a failure is only told, the first batch will meet it too."""
    held = {at: end - seen.beginnings[at] for at, end in seen.ends.items()}
    largest = sorted(held, key=lambda at: held[at], reverse=True)[:MAX_PARTITIONS]
    ends = {at: seen.ends[at] for at in largest}
    start = {at: max(seen.beginnings[at], end - MAX_RECORDS // MAX_PARTITIONS) for at, end in ends.items()}
    try:
        ends = ByteLimit(min(MAX_BYTES, settings.batch.max_bytes), RecordSizeSampler(settings.kafka).at).end(
            start, ends
        )
        SparkJob(spark).run(
            _plan_without_tables(
                settings, seen, assign_ranges(settings.kafka, start, ends, spark.sparkContext.defaultParallelism)
            ),
            _NoWriters(),
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing depends on it
        structlog.get_logger().info("warm-up failed", reason=type(error).__name__)


def _plan_without_tables(settings: SinkSettings, seen: ClusterState, records: PartitionAssignment) -> BatchPlan:
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
        ranks={at: rank for rank, at in enumerate(sorted(seen.ends))},
        feed=records,
        reducers=1,
        max_letters=0,
    )
