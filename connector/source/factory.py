"""settings + a Spark session -> a source that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.state.offset_rows import OffsetRows
from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.opensearch.indexes.index_admin import IndexAdmin
from connector.runtime.monitoring.listeners import SourceListener
from connector.runtime.retry import call_with_retries
from connector.settings import SourceSettings
from connector.source.destinations.kafka import KafkaPublisher
from connector.source.destinations.opensearch import OpenSearchPublisher
from connector.source.destinations.schema_subjects import SchemaSubjects
from connector.source.envelope.json_values import configure_session
from connector.source.poll_loop import PollLoop
from connector.source.snapshots import discovery
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.table_capture import ChangePublisher, TableCapture


def build_source(spark: SparkSession, settings: SourceSettings, listeners: Sequence[SourceListener] = ()) -> PollLoop:
    """Put a source together at its stored positions.

    Args:
        spark: a session whose catalog is the settings' one; some of its settings are changed.
        settings: everything else.
        listeners: hear of each step of a table.

    Raises:
        RetriableError: the cluster or the catalog is away.
    """
    configure_session(spark)
    catalog = call_with_retries(lambda: Catalog(spark, settings.catalog, settings.errors), settings.errors)
    standings = call_with_retries(lambda: open_offsets(catalog, settings), settings.errors)
    out, beat = _build_publisher(settings)

    def open_(namespace: tuple[str, ...], name: str) -> TableCapture:
        table = catalog.find(namespace, name)
        if table is None:
            full = ".".join((*namespace, name))
            raise FatalError(f"table {full} is not in catalog {settings.catalog.name}; check table.include.list")
        snapshots = SnapshotHistory(spark, table, settings.capture.branch)
        return TableCapture(spark, settings, table, snapshots, standings, out, listeners)

    own = catalog.full_name(settings.capture.offsets_table)
    return PollLoop(settings, lambda: discovery.find_tables(catalog, settings.capture, own), open_, beat)


def _build_publisher(settings: SourceSettings) -> tuple[ChangePublisher, Callable[[int], None]]:
    """Give where changes go, and what sends heartbeats."""
    if settings.search is not None:
        return OpenSearchPublisher(settings, settings.search, IndexAdmin(settings.search)), lambda _: None
    cluster = KafkaAdmin(settings.kafka)
    call_with_retries(cluster.id, settings.errors)
    emitter = KafkaPublisher(
        settings, cluster, MessageProducer(settings.kafka, cluster), SchemaSubjects(settings.outgoing)
    )
    return emitter, emitter.heartbeat


def open_offsets(catalog: Catalog, settings: SourceSettings) -> TableOffsetStore:
    """Read the stored positions."""
    rows = OffsetRows(catalog, settings.capture.offsets_table, settings.name)
    return TableOffsetStore(rows, settings.name, settings.errors)
