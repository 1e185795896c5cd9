"""settings -> one run of the sink in this process: session, sink, signals, and what is shown meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import structlog
from pyspark.sql import SparkSession

from connector.iceberg.commit.kafka_position import nested
from connector.kafka.admin import Cluster
from connector.runtime.monitoring.sink_progress import Shown
from connector.runtime.retry import retried
from connector.runtime.spark.session import session, stopped_by_signals
from connector.settings import SinkSettings
from connector.sink.factory import Sink, build, look
from connector.sink.microbatch.processor import Report
from connector.sink.microbatch.start_offsets import Seen
from connector.sink.microbatch.warmup import warm_up


@contextmanager
def warming(spark: SparkSession, settings: SinkSettings, seen: Seen) -> Iterator[None]:
    """Warm up beside what is done inside, and wait for it: the first batch should find everything ready."""
    workers = threading.Thread(target=warm_up, args=(spark, settings, seen), daemon=True)
    workers.start()
    yield
    workers.join()


def run(settings: SinkSettings, *, once: bool, terminal: bool) -> None:
    """Run the sink until it is stopped (SIGTERM, SIGINT), or to the offsets of now with `once`.

    Raises:
        ConnectorError: why it could not start or go on.
    """
    for note in settings.notes:
        structlog.get_logger().warning(note)
    with ThreadPoolExecutor(1) as beside:
        looked = beside.submit(lambda: retried(lambda: look(Cluster(settings.kafka)), settings.errors))
        with session(settings) as spark:
            seen, shown = looked.result(), Shown(terminal=terminal)
            with warming(spark, settings, seen):
                sink = build(spark, settings, lambda report: tell(shown, report), seen)
            with shown:
                _run(sink, once=once)


def _run(sink: Sink, *, once: bool) -> None:
    try:
        with stopped_by_signals(sink.stream):
            structlog.get_logger().info("reading", offsets=nested(sink.stream.position.offsets))
            sink.stream.run(once=once)
    finally:
        sink.close()


def tell(shown: Shown, report: Report) -> None:
    """Show a batch's report."""
    shown.batch(
        report.batch,
        report.events,
        report.seconds,
        report.dead_letters,
        tables=len(report.tables),
        **report.counts,
        tombstones=report.tombstones,
        ignored=report.ignored,
        **({"nulled": report.nulled} if report.nulled else {}),
        **({"late": report.late} if report.late else {}),
        **({"iceberg_schema_drift_count": dict(report.drift)} if report.drift else {}),
        offsets=nested(report.end),
    )
