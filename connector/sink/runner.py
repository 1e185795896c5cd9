"""settings -> the runs of a sink in this process: session, sink, signals, and what is shown meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import CommitUnknown, ConnectorError, RetriableError
from connector.iceberg.catalog.columns import column_lookup
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer.reader_check import check_reader
from connector.runtime.lifecycle import Lifecycle, NotWanted, start_call
from connector.runtime.monitoring.exporters import open_exporters
from connector.runtime.monitoring.lineage import (
    Dataset,
    DatasetNames,
    catalog_namespace,
    kafka_namespace,
    no_columns,
)
from connector.runtime.monitoring.listeners import MaintenanceListener, SinkListener
from connector.runtime.monitoring.sink_progress import SinkStatusLine
from connector.runtime.monitoring.telemetry import BatchLimits
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_session
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.stop_signals import stop_on_signals
from connector.runtime.topic_partitions import TopicPartition, nest_by_topic
from connector.settings import KafkaSettings, SinkSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.factory import Sink, SinkObservers, build_sink
from connector.sink.microbatch.cluster import NoTopics, inspect_cluster
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.microbatch.warmup import WarmUpBeside

T = TypeVar("T")
_Look = tuple[ClusterState, KafkaSettings]
_LOOK_S, _TOPICS_S = 0.1, 1.0
REFUSAL_S = 1.0
"""So long a start waits for the brokers to refuse us; those that answer do so in milliseconds."""


@attrs.frozen
class SinkMonitor:
    """Who looks at a sink and steers it: `on_session` gets its session, `on_start` the offsets where a run begins.

    `is_connected` tells whether the cluster answered at the last look.
    """

    lifecycle: Lifecycle = attrs.field(factory=Lifecycle)
    listeners: Sequence[SinkListener] = ()
    on_session: Callable[[SparkSession], None] = lambda _: None
    on_start: Callable[[Mapping[TopicPartition, int]], None] = lambda _: None
    maintenance_listeners: Sequence[MaintenanceListener] = ()
    is_connected: Callable[[], bool] = lambda: True


def run_sink(
    settings: SinkSettings,
    *,
    once: bool,
    terminal: bool,
    monitor: SinkMonitor | None = None,
    starting: StartingSession | None = None,
) -> None:
    """Run the sink until it is stopped (SIGTERM, SIGINT), or to the offsets of now with `once`.

    `starting` is its session, if that began to start already.

    Raises:
        ConnectorError: why it could not start or continue.
    """
    for note in settings.notes:
        structlog.get_logger().warning(note)
    monitor = monitor or SinkMonitor()
    # In threads that nobody waits for: brokers that went away meanwhile are asked for minutes.
    abandoned = threading.Event()
    reader = start_call(
        lambda: call_with_retries(_unless(abandoned, lambda: _check_reader(settings)), settings.errors), "reader"
    )

    def look() -> _Look:
        kafka = reader.result()
        return _look_for_topics(settings, _unless(abandoned, lambda: None), once=once), kafka

    first_look = start_call(look, "look")
    try:
        # A wrong password is told before the JVM is waited for; brokers that are slow to answer hold nothing up.
        if reader in wait([reader], REFUSAL_S).done:
            reader.result()
        with open_session(settings, starting) as spark, SinkStatusLine(terminal=terminal) as progress:
            monitor = attrs.evolve(monitor, listeners=(progress, *monitor.listeners))
            monitor.on_session(spark)
            live_sink(lambda: spark, settings, monitor, once=once, survives=False, first_look=first_look)
    finally:
        abandoned.set()


def live_sink(
    open_own: Callable[[], SparkSession],
    settings: SinkSettings,
    monitor: SinkMonitor,
    *,
    once: bool = False,
    survives: bool,
    first_look: Future[_Look] | None = None,
) -> None:
    """Begin runs of a sink in a session as its lifecycle asks for them; returns when there is to be none any more.

    Args:
        open_own: returns a session whose catalog is the settings' one; called when a run begins.
        settings: of the sink.
        monitor: its lifecycle, and who hears of it.
        once: a run ends at the offsets that the topics have when it begins.
        survives: a run that fails waits for a restart instead of raising.
        first_look: the cluster and how it is read, if that is being looked at for the first run.

    Raises:
        ConnectorError: what ended a run.
    """
    runs = _SinkRuns(open_own, settings, monitor, once, first_look)
    monitor.lifecycle.live(runs.begin, survives=survives, guard=lambda: stop_on_signals(monitor.lifecycle))


@attrs.define(eq=False)
class _SinkRuns:
    """Puts the runs of a sink together, one after the other."""

    open_own: Callable[[], SparkSession]
    settings: SinkSettings
    monitor: SinkMonitor
    once: bool
    first_look: Future[_Look] | None
    _last: Sink | None = None

    def begin(self) -> _SinkRun:
        """Look at the cluster, then put a run together.

        Raises:
            NotWanted: something else was asked for meanwhile.
            ConnectorError: why it cannot begin.
        """
        cluster_state, kafka = self._look()
        spark, own, monitor = self.open_own(), attrs.evolve(self.settings, kafka=kafka), self.monitor
        with ExitStack() as kept:
            names = name_datasets(spark, own)
            limits = BatchLimits(own.batch.max_events, own.batch.max_bytes)
            told = open_exporters(
                own.lineage, names, own.name, "sink", limits=limits, is_connected=monitor.is_connected
            )
            exporters = kept.enter_context(told)
            warming = WarmUpBeside(spark, own, cluster_state)
            kept.callback(warming.close)
            listeners = (*monitor.listeners, *exporters.listeners)
            observers = SinkObservers(listeners, monitor.maintenance_listeners, monitor.lifecycle.beat, warming.wait)
            sink = build_sink(spark, own, observers, cluster_state)
            if self._last is not None:
                # Who reads the log tells batches by their numbers, also across a pause.
                sink.stream.batches = self._last.stream.batches
            self._last = sink
            monitor.on_start(sink.stream.position.offsets)
            return _SinkRun(sink, kept.pop_all(), self.once)

    def _look(self) -> _Look:
        first_look, self.first_look = self.first_look, None
        if first_look is not None:
            return _await_look(first_look, self.monitor.lifecycle)
        return _look_while_wanted(self.monitor.lifecycle, self.settings, once=self.once)


def name_datasets(spark: SparkSession, settings: SinkSettings) -> DatasetNames:
    """Return how lineage names the topics that are read, and the tables or indexes that are written."""
    topics = kafka_namespace(settings.lineage.servers or settings.kafka.bootstrap_servers)
    if isinstance(settings.destination, OpenSearchSettings):
        return DatasetNames(settings.destination.connection.urls[0], partial(Dataset, topics), no_columns)
    tables = catalog_namespace(settings.catalog.name, settings.catalog.properties)
    columns = column_lookup(spark, settings.catalog) if settings.lineage.enabled else no_columns
    return DatasetNames(tables, partial(Dataset, topics), columns, settings.catalog.namespace)


def _await_look(asked: Future[T], lifecycle: Lifecycle) -> T:
    """Return what a look began earlier finds, unless no run is wanted any more."""
    while asked not in wait([asked], _LOOK_S).done:
        lifecycle.check_wanted()
        lifecycle.beat()
    return asked.result()


def _look_while_wanted(lifecycle: Lifecycle, settings: SinkSettings, *, once: bool) -> _Look:
    """Look at the brokers and topics, again and again where that fails, while a run is wanted."""

    def check_reader_while_wanted() -> KafkaSettings:
        lifecycle.check_wanted()
        return _await_look(start_call(lambda: _check_reader(settings), "reader"), lifecycle)

    def check_wanted() -> None:
        lifecycle.check_wanted()
        lifecycle.beat()

    kafka = call_with_retries(check_reader_while_wanted, settings.errors)
    return _look_for_topics(settings, check_wanted, once=once), kafka


def _look_for_topics(settings: SinkSettings, check_wanted: Callable[[], None], *, once: bool) -> ClusterState:
    """Return the cluster once a selected topic exists; a run to the end of today's topics does not wait for any."""
    cluster, is_announced = KafkaAdmin(settings.kafka), False

    def look() -> ClusterState | None:
        check_wanted()
        try:
            return inspect_cluster(cluster)
        except NoTopics:
            if once:
                raise
            return None

    while (found := call_with_retries(look, settings.errors)) is None:
        if not is_announced:
            selected = settings.kafka.topics_regex or ",".join(settings.kafka.topics)
            note = "none of the selected topics exists yet, and the sink waits for one"
            structlog.get_logger().warning(note, topics=selected)
            is_announced = True
        time.sleep(_TOPICS_S)
    return found


def _check_reader(settings: SinkSettings) -> KafkaSettings:
    checked = check_reader(settings.kafka)
    for note in checked.notes:
        structlog.get_logger().warning(note)
    structlog.get_logger().info(checked.line)
    return checked.kafka


def _unless(abandoned: threading.Event, call: Callable[[], T]) -> Callable[[], T]:
    """Return a call that is not tried again once nobody waits for it."""

    def ask() -> T:
        if abandoned.is_set():
            raise NotWanted
        return call()

    return ask


@attrs.frozen
class _SinkRun:
    """One run; `kept` is left when it ends, with the error that ended it."""

    sink: Sink
    kept: ExitStack
    once: bool

    def run(self) -> None:
        """Run the stream, then let go of the cluster; a run that ends by itself leaves nothing half done."""
        with self.kept:
            try:
                structlog.get_logger().info("reading", offsets=nest_by_topic(self.sink.stream.position.offsets))
                self.sink.stream.run(once=self.once)
            except BaseException:
                self._close_after_error()
                raise
            self._close()
            if self.once and not self.sink.stream.is_stopping:
                self.sink.destination.finish()

    def stop(self) -> None:
        """Finish the current batch, then leave."""
        self.sink.stream.stop()

    def _close_after_error(self) -> None:
        """Let go of the cluster; what ended the run is what its caller is to hear of."""
        try:
            self._close()
        except ConnectorError as error:
            structlog.get_logger().warning("the last batch's offsets were not stored either", reason=str(error))

    def _close(self) -> None:
        """Let go of the cluster. Of a run that was stopped the next start finds what could not be stored any more."""
        try:
            self.sink.close()
        except (RetriableError, CommitUnknown) as error:
            if not self.sink.stream.is_stopping:
                raise
            note = "stopped before the last batch's offsets were stored; the next start reads where the tables are"
            structlog.get_logger().warning(note, reason=str(error))
