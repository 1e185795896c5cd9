"""settings + a Spark session -> a source that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshots import Snapshots
from connector.iceberg.state.offset_rows import StoredRows
from connector.kafka.admin import Cluster
from connector.kafka.producer import Messages
from connector.opensearch.indexes.index_admin import Indexes
from connector.runtime.retry import retried
from connector.settings import SourceSettings
from connector.source.destinations.kafka import Emitter
from connector.source.destinations.opensearch import Indexer
from connector.source.destinations.schema_subjects import Subjects
from connector.source.envelope.json_values import settle
from connector.source.poll_loop import Tables
from connector.source.snapshots import discovery
from connector.source.snapshots.offset_store import Standings
from connector.source.table_capture import Done, Feed, Out


def build(spark: SparkSession, settings: SourceSettings, told: Callable[[Done], None]) -> Tables:
    """Put a source together at its stored positions.

    Args:
        spark: a session whose catalog is the settings' one; some of its settings are changed.
        settings: everything else.
        told: called after each step of a table.

    Raises:
        RetriableError: the cluster or the catalog is away.
    """
    settle(spark)
    catalog = retried(lambda: Catalog(spark, settings.catalog, settings.errors), settings.errors)
    standings = retried(lambda: opened(catalog, settings), settings.errors)
    out, beat = _out(settings)

    def open_(namespace: tuple[str, ...], name: str) -> Feed:
        table = catalog.find(namespace, name)
        if table is None:
            full = ".".join((*namespace, name))
            raise FatalError(f"table {full} is not in catalog {settings.catalog.name}; check table.include.list")
        snapshots = Snapshots(spark, table, settings.capture.branch)
        return Feed(spark, settings, table, snapshots, standings, out, told)

    own = catalog.full_name(settings.capture.offsets_table)
    return Tables(settings, lambda: discovery.find(catalog, settings.capture, own), open_, beat)


def _out(settings: SourceSettings) -> tuple[Out, Callable[[int], None]]:
    """Give where changes go, and what sends heartbeats."""
    if settings.search is not None:
        return Indexer(settings, settings.search, Indexes(settings.search)), lambda _: None
    cluster = Cluster(settings.kafka)
    retried(cluster.id, settings.errors)
    emitter = Emitter(settings, cluster, Messages(settings.kafka, cluster), Subjects(settings.outgoing))
    return emitter, emitter.heartbeat


def opened(catalog: Catalog, settings: SourceSettings) -> Standings:
    """Read the stored positions."""
    rows = StoredRows(catalog, settings.capture.offsets_table, settings.name)
    return Standings(rows, settings.name, settings.errors)
