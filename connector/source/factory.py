"""Settings + a Spark session -> a source that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.runtime.monitoring.listeners import SnapshotListener, SourceListener
from connector.runtime.retry import call_with_retries
from connector.settings import SourceSettings
from connector.source.capture_reports import CaptureReports
from connector.source.destination import ChangePublisher
from connector.source.destinations.registry import open_publisher
from connector.source.envelope.json_values import configure_session
from connector.source.poll_loop import PollLoop
from connector.source.signals.channel import SignalChannel
from connector.source.signals.file_channel import FileChannel
from connector.source.signals.kafka_channel import KafkaChannel
from connector.source.signals.processor import SignalProcessor
from connector.source.signals.queue_channel import SignalQueue
from connector.source.signals.table_channel import TableChannel
from connector.source.snapshots.discovery import DiscoveredTables, find_in_other_case, find_tables
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.snapshot_queue import SnapshotQueue, drop_excluded
from connector.source.table_access import TableAccess
from connector.source.table_capture import TableCapture


@attrs.frozen(eq=False)
class SourceTables:
    """The tables that a source reads, each of which can be opened at its stored offset."""

    spark: SparkSession
    settings: SourceSettings
    catalog: Catalog
    offsets: TableOffsetStore
    publisher: ChangePublisher
    listeners: Sequence[SourceListener] = ()
    snapshot_listeners: Sequence[SnapshotListener] = ()
    on_look: Callable[[str, int | None], None] = lambda _name, _waiting_ms: None

    def find(self) -> DiscoveredTables:
        """Return the tables that there are now."""
        return find_tables(self.catalog, self.settings)

    def find_in_other_case(self, namespace: tuple[str, ...], name: str) -> str | None:
        """Return the table that a missing one's name may stand for."""
        return find_in_other_case(self.catalog, namespace, name)

    def open(self, namespace: tuple[str, ...], name: str) -> TableCapture | None:
        """Open a table; None where there is no such table."""
        table = self.catalog.find(namespace, name)
        if table is None:
            return None
        snapshots = SnapshotHistory(self.spark, table, self.settings.capture.branch)
        access = TableAccess(self.spark, self.settings, table, snapshots, self.offsets, self.publisher)
        reports = CaptureReports(access.name, self.listeners, self.snapshot_listeners)
        return TableCapture(access, reports, self.on_look)


def build_source(
    spark: SparkSession,
    settings: SourceSettings,
    listeners: Sequence[SourceListener] = (),
    snapshot_listeners: Sequence[SnapshotListener] = (),
    signals: SignalQueue | None = None,
    *,
    beat: Callable[[], None] = lambda: None,
    on_round: Callable[[], None] = lambda: None,
    on_look: Callable[[str, int | None], None] = lambda _name, _waiting_ms: None,
    on_queue: Callable[[SnapshotQueue], None] = lambda _: None,
    on_stop: Callable[[str, str], None] = lambda _name, _reason: None,
) -> PollLoop:
    """Put a source together at its stored offsets; raises as `build_tables`.

    Args:
        spark: a session whose catalog is the settings' one; some of its settings are changed.
        settings: everything else.
        listeners: hear of each step of a table.
        snapshot_listeners: hear how snapshots go.
        signals: what other threads of this process ask for, beside the channels of the settings.
        beat: as of `PollLoop`.
        on_round: as of `PollLoop`.
        on_look: as of `TableCapture`.
        on_queue: gets the snapshots on demand that an earlier run left.
        on_stop: as of `PollLoop`.
    """
    tables = attrs.evolve(build_tables(spark, settings, listeners, snapshot_listeners), on_look=on_look)
    _give_up_excluded(tables.offsets, settings, snapshot_listeners)
    on_queue(tables.offsets.queue)
    channels = open_channels(spark, tables.catalog, settings, signals)
    interval_ms = settings.signals.poll_interval_ms
    processor = SignalProcessor(channels, tables.offsets, interval_ms, snapshot_listeners) if channels else None
    return PollLoop(
        settings,
        tables.find,
        tables.open,
        tables.publisher,
        processor,
        beat,
        on_round,
        tables.offsets.tables,
        tables.find_in_other_case,
        on_stop,
    )


def _give_up_excluded(
    offsets: TableOffsetStore, settings: SourceSettings, listeners: Sequence[SnapshotListener]
) -> None:
    outcome = drop_excluded(offsets.queue, settings.capture.takes)
    if outcome.queue == offsets.queue:
        return
    offsets.put_queue(outcome.queue)
    for note in outcome.notes:
        structlog.get_logger().warning("snapshot on demand aborted", note=note)
    for report in outcome.reports:
        for listener in listeners:
            listener.on_snapshot(report)


def open_channels(
    spark: SparkSession, catalog: Catalog, settings: SourceSettings, signals: SignalQueue | None
) -> list[SignalChannel]:
    """Return the channels of signals that the settings name; nothing is asked yet."""
    options, channels = settings.signals, list[SignalChannel]()
    if options.table is not None:
        channels.append(TableChannel(spark, catalog, options.table))
    if options.topic is not None:
        channels.append(KafkaChannel(options.topic, settings.outgoing.prefix))
    if options.file is not None:
        channels.append(FileChannel(options.file))
    if signals is not None:
        channels.append(signals)
    return channels


def build_tables(
    spark: SparkSession,
    settings: SourceSettings,
    listeners: Sequence[SourceListener] = (),
    snapshot_listeners: Sequence[SnapshotListener] = (),
) -> SourceTables:
    """Put together what reads and publishes a source's tables.

    Args:
        spark: a session whose catalog is the settings' one; some of its settings are changed.
        settings: everything else.
        listeners: hear of each step of a table.
        snapshot_listeners: hear how snapshots go.

    Raises:
        RetriableError: the cluster or the catalog is away.
    """
    configure_session(spark)
    catalog = call_with_retries(lambda: Catalog(spark, settings.catalog, settings.errors), settings.errors)
    offsets = call_with_retries(lambda: open_offsets(catalog, settings), settings.errors)
    return SourceTables(spark, settings, catalog, offsets, open_publisher(settings), listeners, snapshot_listeners)


def open_offsets(catalog: Catalog, settings: SourceSettings) -> TableOffsetStore:
    """Read the stored offsets."""
    rows = OffsetRows(catalog, settings.capture.offsets_table, settings.name, SOURCE)
    return TableOffsetStore(rows, settings.name, settings.errors)
