"""settings -> a Spark session for one run, and the signals that end it: what sink and source runs share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from pyspark.sql import SparkSession

from connector.settings import SinkSettings, SourceSettings
from connector.spark import build_session


class Stoppable(Protocol):
    """Something that runs until it is told to stop."""

    def stop(self) -> None:
        """Finish what is at hand, then leave; safe to call from a signal handler."""


@contextmanager
def session(settings: SinkSettings | SourceSettings) -> Iterator[SparkSession]:
    """Start Spark for these settings, and stop it in the end."""
    spark = build_session(f"icebridge {settings.name}", settings.catalog, settings.spark)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def stopped_by_signals(running: Stoppable) -> Iterator[None]:
    """Let SIGTERM and SIGINT finish what is at hand; only the main thread can have signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: running.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
