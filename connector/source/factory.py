"""Settings + a Spark session -> a source that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.runtime.monitoring.listeners import SourceListener
from connector.runtime.retry import call_with_retries
from connector.settings import SourceSettings
from connector.source.destination import ChangePublisher
from connector.source.destinations.registry import open_publisher
from connector.source.envelope.json_values import configure_session
from connector.source.poll_loop import PollLoop
from connector.source.snapshots.discovery import DiscoveredTables, find_tables
from connector.source.snapshots.offset_store import TableOffsetStore
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

    def find(self) -> DiscoveredTables:
        """Return the tables that there are now."""
        capture = self.settings.capture
        return find_tables(self.catalog, capture, self.catalog.full_name(capture.offsets_table))

    def open(self, namespace: tuple[str, ...], name: str) -> TableCapture:
        """Open a table.

        Raises:
            FatalError: there is no such table.
        """
        table = self.catalog.find(namespace, name)
        if table is None:
            full = ".".join((*namespace, name))
            raise FatalError(f"table {full} is not in catalog {self.settings.catalog.name}; check table.include.list")
        snapshots = SnapshotHistory(self.spark, table, self.settings.capture.branch)
        return TableCapture(self.spark, self.settings, table, snapshots, self.offsets, self.publisher, self.listeners)


def build_source(spark: SparkSession, settings: SourceSettings, listeners: Sequence[SourceListener] = ()) -> PollLoop:
    """Put a source together at its stored offsets; raises as `build_tables`."""
    tables = build_tables(spark, settings, listeners)
    return PollLoop(settings, tables.find, tables.open, tables.publisher)


def build_tables(
    spark: SparkSession, settings: SourceSettings, listeners: Sequence[SourceListener] = ()
) -> SourceTables:
    """Put together what reads and publishes a source's tables.

    Args:
        spark: a session whose catalog is the settings' one; some of its settings are changed.
        settings: everything else.
        listeners: hear of each step of a table.

    Raises:
        RetriableError: the cluster or the catalog is away.
    """
    configure_session(spark)
    catalog = call_with_retries(lambda: Catalog(spark, settings.catalog, settings.errors), settings.errors)
    offsets = call_with_retries(lambda: open_offsets(catalog, settings), settings.errors)
    return SourceTables(spark, settings, catalog, offsets, open_publisher(settings), listeners)


def open_offsets(catalog: Catalog, settings: SourceSettings) -> TableOffsetStore:
    """Read the stored offsets."""
    rows = OffsetRows(catalog, settings.capture.offsets_table, settings.name, SOURCE)
    return TableOffsetStore(rows, settings.name, settings.errors)
