"""settings -> one run of the source in this process: session, tables, signals, and what is shown meanwhile."""

from __future__ import annotations

import structlog

from connector.runtime.monitoring.source_progress import Published
from connector.runtime.spark.session import session, stopped_by_signals
from connector.settings import SourceSettings
from connector.source.factory import build


def run(settings: SourceSettings, *, once: bool, terminal: bool) -> None:
    """Run the source until it is stopped (SIGTERM, SIGINT), or to the snapshots of now with `once`.

    Raises:
        ConnectorError: why it could not start, or which tables failed.
    """
    for note in settings.notes:
        structlog.get_logger().warning(note)
    with session(settings) as spark, Published(terminal=terminal) as shown:
        tables = build(spark, settings, shown.step)
        with stopped_by_signals(tables):
            tables.run(once=once)
