"""settings + a Spark session -> a source that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog import Catalog
from connector.iceberg.history import Snapshots
from connector.iceberg.stored import StoredRows
from connector.kafka.cluster import Cluster
from connector.kafka.messages import Messages
from connector.opensearch.indexes import Indexes
from connector.retry import retried
from connector.settings import SourceSettings
from connector.source import discovery
from connector.source.documents import Indexer
from connector.source.emit import Emitter
from connector.source.feed import Done, Feed, Out
from connector.source.run import Tables
from connector.source.standings import Standings
from connector.source.subjects import Subjects
from connector.source.values import settle


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
