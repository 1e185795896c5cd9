"""settings -> the runs of a source in this process: session, tables, signals, and what is shown meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.iceberg.catalog.columns import column_lookup
from connector.opensearch.indexes.index_names import to_index_name
from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.exporters import open_exporters
from connector.runtime.monitoring.lineage import (
    Dataset,
    DatasetNames,
    catalog_namespace,
    kafka_namespace,
    no_columns,
)
from connector.runtime.monitoring.listeners import SnapshotListener, SourceListener
from connector.runtime.monitoring.source_progress import SourceStatusLine
from connector.runtime.spark.session import open_session
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.stop_signals import stop_on_signals
from connector.settings import SourceSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.source.factory import build_source
from connector.source.notifications import open_notifications
from connector.source.poll_loop import PollLoop
from connector.source.signals.queue_channel import SignalQueue
from connector.source.snapshots.snapshot_queue import SnapshotQueue, report_queue


@attrs.frozen
class SourceMonitor:
    """Who looks at a source, and steers it: `on_session` gets its session, `on_round` is called after each round.

    `on_look` hears before each step of a table when its oldest snapshot that is to be published was committed,
    `on_stop` as that of `PollLoop`. `signals` are what other threads ask for, beside the channels of the settings.
    `is_connected` tells whether the cluster answered at the last look.
    """

    lifecycle: Lifecycle = attrs.field(factory=Lifecycle)
    listeners: Sequence[SourceListener] = ()
    snapshot_listeners: Sequence[SnapshotListener] = ()
    signals: SignalQueue | None = None
    on_session: Callable[[SparkSession], None] = lambda _: None
    on_round: Callable[[], None] = lambda: None
    on_look: Callable[[str, int | None], None] = lambda _name, _waiting_ms: None
    on_stop: Callable[[str, str], None] = lambda _name, _reason: None
    is_connected: Callable[[], bool] = lambda: True


def run_source(
    settings: SourceSettings,
    *,
    once: bool,
    terminal: bool,
    monitor: SourceMonitor | None = None,
    starting: StartingSession | None = None,
) -> None:
    """Run the source until it is stopped (SIGTERM, SIGINT), or to the snapshots of now with `once`.

    `starting` is its session, if that began to start already.

    Raises:
        ConnectorError: why it could not start, or which tables failed.
    """
    for note in settings.notes:
        structlog.get_logger().warning(note)
    monitor = monitor or SourceMonitor()
    with open_session(settings, starting) as spark, SourceStatusLine(terminal=terminal) as progress:
        monitor = attrs.evolve(monitor, listeners=(progress, *monitor.listeners))
        monitor.on_session(spark)
        live_source(lambda: spark, settings, monitor, once=once, survives=False)


def live_source(
    open_own: Callable[[], SparkSession],
    settings: SourceSettings,
    monitor: SourceMonitor,
    *,
    once: bool = False,
    survives: bool,
) -> None:
    """Begin runs of a source in a session as its lifecycle asks for them; arguments as of the sink's `live_sink`.

    Raises:
        ConnectorError: what ended a run.
    """
    lifecycle = monitor.lifecycle

    def begin() -> _SourceRun:
        with ExitStack() as kept:
            spark = open_own()
            names, server = name_datasets(spark, settings), settings.outgoing.prefix
            told = open_exporters(settings.lineage, names, server, "streaming", is_connected=monitor.is_connected)
            exporters = kept.enter_context(told)
            measuring = (*monitor.snapshot_listeners, *exporters.snapshot_listeners)
            loop = build_source(
                spark,
                settings,
                (*monitor.listeners, *exporters.listeners),
                (*open_notifications(settings), *measuring),
                monitor.signals,
                beat=lifecycle.beat,
                on_round=monitor.on_round,
                on_look=monitor.on_look,
                on_queue=partial(_tell_queue, measuring),
                on_stop=monitor.on_stop,
            )
            return _SourceRun(loop, kept.pop_all(), once)

    lifecycle.live(begin, survives=survives, guard=lambda: stop_on_signals(lifecycle))


def _tell_queue(listeners: Sequence[SnapshotListener], queue: SnapshotQueue) -> None:
    """Tell those who measure of the snapshots that go on, or are paused, since an earlier run; nobody is notified."""
    for report in report_queue(queue):
        for listener in listeners:
            listener.on_snapshot(report)


@attrs.frozen
class _SourceRun:
    """One run; `kept` is left when it ends, with the error that ended it."""

    loop: PollLoop
    kept: ExitStack
    once: bool

    def run(self) -> None:
        """Poll until stopped."""
        with self.kept:
            self.loop.run(once=self.once)

    def stop(self) -> None:
        """Finish the current step, then leave."""
        self.loop.stop()


def name_datasets(spark: SparkSession, settings: SourceSettings) -> DatasetNames:
    """Return how lineage names the tables that are read, and the topics or indexes that have their changes."""
    tables = catalog_namespace(settings.catalog.name, settings.catalog.properties)
    columns = column_lookup(spark, settings.catalog) if settings.lineage.enabled else no_columns
    return DatasetNames(tables, partial(_name_target, settings), columns)


def _name_target(settings: SourceSettings, table: str) -> Dataset:
    topic = settings.outgoing.topic(table)
    if isinstance(settings.destination, OpenSearchSettings):
        return Dataset(settings.destination.connection.urls[0], to_index_name(topic))
    return Dataset(kafka_namespace(settings.lineage.servers or settings.kafka.bootstrap_servers), topic)
