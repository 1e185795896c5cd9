"""settings -> one run of the source in this process: session, tables, signals, and what is shown meanwhile."""

from __future__ import annotations

from functools import partial

import structlog
from pyspark.sql import SparkSession

from connector.iceberg.catalog.columns import column_lookup
from connector.opensearch.indexes.index_names import to_index_name
from connector.runtime.monitoring.exporters import open_exporters
from connector.runtime.monitoring.lineage import (
    Dataset,
    DatasetNames,
    catalog_namespace,
    kafka_namespace,
    no_columns,
)
from connector.runtime.monitoring.source_progress import SourceStatusLine
from connector.runtime.spark.session import open_session, stop_on_signals
from connector.settings import SourceSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.source.factory import build_source
from connector.source.notifications import open_notifications
from connector.source.signals.queue_channel import SignalQueue


def run(settings: SourceSettings, *, once: bool, terminal: bool, signals: SignalQueue | None = None) -> None:
    """Run the source until it is stopped (SIGTERM, SIGINT), or to the snapshots of now with `once`.

    `signals` are what other threads of this process ask for, beside the channels of the settings.

    Raises:
        ConnectorError: why it could not start, or which tables failed.
    """
    for note in settings.notes:
        structlog.get_logger().warning(note)
    server = settings.outgoing.prefix
    with (
        open_session(settings) as spark,
        SourceStatusLine(terminal=terminal) as progress,
        open_exporters(settings.lineage, name_datasets(spark, settings), server, "streaming") as exporters,
    ):
        heard = [*open_notifications(settings), *exporters.snapshot_listeners]
        tables = build_source(spark, settings, [progress, *exporters.listeners], heard, signals)
        with stop_on_signals(tables):
            tables.run(once=once)


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
