"""settings -> one run of the source in this process: session, tables, signals, and what is shown meanwhile."""

from __future__ import annotations

import structlog

from connector.runtime.monitoring.source_progress import SourceStatusLine
from connector.runtime.spark.session import open_session, stop_on_signals
from connector.settings import SourceSettings
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
    with open_session(settings) as spark, SourceStatusLine(terminal=terminal) as progress:
        tables = build_source(spark, settings, [progress], open_notifications(settings), signals)
        with stop_on_signals(tables):
            tables.run(once=once)
