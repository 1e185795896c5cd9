"""settings -> one run of the sink in this process: session, sink, signals, and what is shown meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.iceberg.catalog.columns import column_lookup
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer.reader_check import check_reader
from connector.runtime.monitoring.exporters import open_exporters
from connector.runtime.monitoring.lineage import (
    Dataset,
    DatasetNames,
    catalog_namespace,
    kafka_namespace,
    no_columns,
)
from connector.runtime.monitoring.sink_progress import SinkStatusLine
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_session, stop_on_signals
from connector.runtime.topic_partitions import nest_by_topic
from connector.settings import KafkaSettings, SinkSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.factory import Sink, build_sink, inspect_cluster
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.microbatch.warmup import warm_up


@contextmanager
def warm_up_beside(spark: SparkSession, settings: SinkSettings, seen: ClusterState) -> Iterator[None]:
    """Warm up beside what is done inside, and wait for it: the first batch should find everything ready."""
    workers = threading.Thread(target=warm_up, args=(spark, settings, seen), daemon=True)
    workers.start()
    yield
    workers.join()


def run_sink(settings: SinkSettings, *, once: bool, terminal: bool) -> None:
    """Run the sink until it is stopped (SIGTERM, SIGINT), or to the offsets of now with `once`.

    Raises:
        ConnectorError: why it could not start or go on.
    """
    for note in settings.notes:
        structlog.get_logger().warning(note)
    with ThreadPoolExecutor(1) as beside:
        looked = beside.submit(lambda: call_with_retries(lambda: _look_at_cluster(settings), settings.errors))
        with open_session(settings) as spark:
            (seen, kafka), progress = looked.result(), SinkStatusLine(terminal=terminal)
            settings = attrs.evolve(settings, kafka=kafka)
            names = name_datasets(spark, settings)
            with open_exporters(settings.lineage, names, settings.name, "sink") as exporters:
                with warm_up_beside(spark, settings, seen):
                    sink = build_sink(spark, settings, (progress, *exporters.listeners), seen)
                with progress:
                    _run_stream(sink, once=once)


def name_datasets(spark: SparkSession, settings: SinkSettings) -> DatasetNames:
    """Return how lineage names the topics that are read, and the tables or indexes that are written."""
    topics = kafka_namespace(settings.lineage.servers or settings.kafka.bootstrap_servers)
    if isinstance(settings.destination, OpenSearchSettings):
        return DatasetNames(settings.destination.connection.urls[0], partial(Dataset, topics), no_columns)
    tables = catalog_namespace(settings.catalog.name, settings.catalog.properties)
    columns = column_lookup(spark, settings.catalog) if settings.lineage.enabled else no_columns
    return DatasetNames(tables, partial(Dataset, topics), columns, settings.catalog.namespace)


def _look_at_cluster(settings: SinkSettings) -> tuple[ClusterState, KafkaSettings]:
    """Return the cluster as it is, and the settings with the reader that can read its records."""
    found = check_reader(settings.kafka)
    for note in found.notes:
        structlog.get_logger().warning(note)
    structlog.get_logger().info(found.line)
    return inspect_cluster(KafkaAdmin(settings.kafka)), found.kafka


def _run_stream(sink: Sink, *, once: bool) -> None:
    try:
        with stop_on_signals(sink.stream):
            structlog.get_logger().info("reading", offsets=nest_by_topic(sink.stream.position.offsets))
            sink.stream.run(once=once)
    finally:
        sink.close()
