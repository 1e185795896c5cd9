"""settings -> a Spark session for one run, and the signals that end it: what sink and source runs share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from connector.errors import ConnectorError, FatalError
from connector.runtime.spark.session_builder import build_session
from connector.settings import SinkSettings, SourceSettings


class Stoppable(Protocol):
    """Something that runs until it is told to stop."""

    def stop(self) -> None:
        """Finish what is at hand, then leave; safe to call from a signal handler."""


@contextmanager
def open_session(settings: SinkSettings | SourceSettings) -> Iterator[SparkSession]:
    """Start Spark for these settings, and stop it in the end.

    Raises:
        FatalError: Spark's JVM ended by itself meanwhile.
    """
    spark = build_session(f"icebridge {settings.name}", settings.catalog, settings.spark)
    try:
        yield spark
    except Exception as error:
        if isinstance(error, ConnectorError) or not _is_jvm_gone(error):
            raise
        raise FatalError(
            "Spark's JVM ended by itself (out of memory, or killed); the current batch is repeated at the next start"
        ) from error
    finally:
        try:
            spark.stop()
        except (Py4JError, OSError) as error:
            structlog.get_logger().debug("Spark is gone already", reason=str(error))


def _is_jvm_gone(error: BaseException | None) -> bool:
    """Tell whether Py4J found nobody at the other end; it wraps that in other errors."""
    while error is not None:
        if isinstance(error, (Py4JNetworkError, ConnectionRefusedError)):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def stop_on_signals(running: Stoppable) -> Iterator[None]:
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
