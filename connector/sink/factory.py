"""settings + a Spark session -> a sink that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import GapError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer.record_sizes import RecordSizeSampler
from connector.kafka.consumer_group import ConsumerGroup
from connector.kafka.dlq.writer import DeadLetterWriter
from connector.runtime.monitoring.listeners import BatchReport, MaintenanceListener, SinkListener
from connector.runtime.retry import call_with_retries
from connector.settings import SinkSettings
from connector.sink.destinations.context import DestinationContext
from connector.sink.destinations.registry import open_destination
from connector.sink.job.spark_job import SparkJob
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.microbatch.ports import SinkPorts
from connector.sink.microbatch.processor import BatchProcessor
from connector.sink.microbatch.schema_sampling import sample_schemas
from connector.sink.microbatch.size_estimates import ByteLimit
from connector.sink.microbatch.start_offsets import ClusterState, find_starting_offsets, keep_ends_behind
from connector.sink.microbatch.stream import Stream
from connector.sink.microbatch.transactions.transactions import Transactions
from connector.sink.model.destination import Destination, TableRegistry
from connector.sink.model.micro_batch import MicroBatch


@attrs.frozen(eq=False)
class Sink:
    """A sink at its starting position; `stream.run` runs it."""

    stream: Stream
    batches: BatchProcessor
    destination: Destination

    def close(self) -> None:
        """Let go of the cluster; the Spark session is the caller's."""
        self.batches.close()


@attrs.frozen
class SinkObservers:
    """Who follows a sink: `listeners` its batches, `maintenance_listeners` the maintenance of tables, in its thread.

    beat: called some times a second while the stream runs, also during a batch.
    await_warmup: waits for so many seconds, and tells whether the first batch may begin.
    """

    listeners: Sequence[SinkListener] = ()
    maintenance_listeners: Sequence[MaintenanceListener] = ()
    beat: Callable[[], None] = lambda: None
    await_warmup: Callable[[float], bool] = lambda _: True


def begin_batches(
    settings: SinkSettings, ports: SinkPorts, cluster_state: ClusterState, *, stores_start: bool = True
) -> tuple[BatchProcessor, ClusterState]:
    """Return what carries out batches, at the position where the sink has to read on, and the cluster by which it is
    found.

    A gap is looked for a second time in the cluster as it is then: since it was looked at, seconds before, a process of
    this name that is about to end may have read on, and stored more than there was. A new start is stored unless
    nothing is to be (`stores_start`).

    Raises:
        GapError: the stored position does not fit the cluster or the tables.
        RetriableError: the catalog is away, or the cluster.
    """
    try:
        position = _find_start(settings, ports, cluster_state, stores_start=stores_start)
    except GapError:
        cluster_state = call_with_retries(lambda: inspect_cluster(ports.cluster), settings.errors)
        position = _find_start(settings, ports, cluster_state, stores_start=stores_start)
    return BatchProcessor(settings, ports, position), cluster_state


def build_sink(
    spark: SparkSession,
    settings: SinkSettings,
    observers: SinkObservers | None = None,
    cluster_state: ClusterState | None = None,
    *,
    prime: bool = True,
    stores_start: bool = True,
) -> Sink:
    """Put a sink together at the position where it has to read on.

    Args:
        spark: a session whose catalog is the settings' one.
        settings: everything else.
        observers: who follows it; nobody by default.
        cluster_state: the cluster, if it was looked at already.
        prime: make the tables ready that the waiting events will need.
        stores_start: store where it begins, if that is new; a dry run stores nothing.

    Raises:
        GapError: the stored position does not fit the cluster or the tables.
        RetriableError: the cluster or the catalog is away.
    """
    observers = observers or SinkObservers()
    cluster = KafkaAdmin(settings.kafka)
    cluster_state = cluster_state or call_with_retries(lambda: inspect_cluster(cluster), settings.errors)
    ports = _open_ports(spark, settings, cluster, cluster_state, observers.maintenance_listeners)
    batches, cluster_state = begin_batches(settings, ports, cluster_state, stores_start=stores_start)
    if prime:
        _prepare_tables(settings, ports.destination.tables, batches, batches.position, cluster_state)
    start = batches.position
    at_start = KafkaOffsets(start.cluster_id, start.topic_ids, {at: start.offsets[at] for at in cluster_state.ends})
    if ports.offsets.position is not None:
        batches.expect_group(at_start.offsets)
    stream = _build_stream(spark, settings, ports, batches, observers, at_start)
    stream.readable = cluster_state.ends
    return Sink(stream, batches, ports.destination)


def _build_stream(
    spark: SparkSession,
    settings: SinkSettings,
    ports: SinkPorts,
    batches: BatchProcessor,
    observers: SinkObservers,
    start: KafkaOffsets,
) -> Stream:
    def process(batch: MicroBatch) -> BatchReport:
        report = batches.process(batch)
        for listener in observers.listeners:
            listener.on_batch(report)
        return report

    def beat() -> None:
        observers.beat()
        ports.destination.rest()
        batches.rest()

    return Stream(
        spark,
        settings,
        start,
        process,
        ports.cluster,
        ByteLimit(settings.batch.max_bytes, RecordSizeSampler(settings.kafka).at),
        overdue=lambda: batches.overdue,
        hold=ports.destination.find_hold,
        beat=beat,
        await_warmup=observers.await_warmup,
        stop_waiting=batches.stop_waiting,
    )


def _open_ports(
    spark: SparkSession,
    settings: SinkSettings,
    cluster: KafkaAdmin,
    cluster_state: ClusterState,
    maintenance_listeners: Sequence[MaintenanceListener],
) -> SinkPorts:
    catalog, offsets = call_with_retries(lambda: _open_catalog(spark, settings), settings.errors)
    context = DestinationContext(spark, settings, catalog, offsets, cluster_state.topics, maintenance_listeners)
    followed = settings.kafka.transactions
    return SinkPorts(
        SparkJob(spark),
        call_with_retries(lambda: open_destination(context), settings.errors),
        offsets,
        cluster,
        DeadLetterWriter(settings.name, settings.kafka, settings.errors, cluster),
        ConsumerGroup(settings.kafka),
        Transactions(spark, followed) if followed.topic else None,
    )


def _find_start(
    settings: SinkSettings, ports: SinkPorts, cluster_state: ClusterState, *, stores_start: bool
) -> KafkaOffsets:
    """Return where the sink has to read on; a new start is stored before anything is committed.

    A crash must not begin at another "latest".
    """
    offsets = ports.offsets
    position = find_starting_offsets(
        offsets.position,
        ports.destination.stored_offsets(),
        {name: commit.position for name, commit in offsets.tables.items()},
        cluster_state,
        settings.kafka.auto_offset_reset,
        settings.kafka.topics,
    )
    if stores_start and _is_new_start(offsets.position, position, settings):
        call_with_retries(lambda: offsets.save(position, {}), settings.errors)
    return position


def _is_new_start(stored: KafkaOffsets | None, position: KafkaOffsets, settings: SinkSettings) -> bool:
    """Tell whether something is read, or waited for, that was not before."""
    if stored is None:
        return True
    fresh = position.offsets.keys() - stored.offsets.keys() or position.topic_ids.keys() - stored.topic_ids.keys()
    return bool(fresh) and settings.kafka.auto_offset_reset == "latest"


def _open_catalog(spark: SparkSession, settings: SinkSettings) -> tuple[Catalog, OffsetsTable]:
    catalog = Catalog(spark, settings.catalog, settings.errors)
    return catalog, OffsetsTable(catalog, settings.table.offsets_table, settings.name)


def _prepare_tables(
    settings: SinkSettings,
    tables: TableRegistry,
    batches: BatchProcessor,
    position: KafkaOffsets,
    cluster_state: ClusterState,
) -> None:
    ends = KafkaOffsets(cluster_state.cluster_id, {}, keep_ends_behind(position.offsets, cluster_state.ends))
    # A plan loads the tables that are there.
    waiting = MicroBatch(-1, position.offsets, ends.offsets)
    plan, _ = call_with_retries(lambda: batches.plan(waiting), settings.errors)
    needs = sample_schemas(settings.kafka, plan, position, ends)
    if needs:
        structlog.get_logger().info(
            "preparing tables for waiting events", topics=sorted({need.topic for need in needs})
        )
        call_with_retries(lambda: tables.apply_schema_changes(needs), settings.errors)
