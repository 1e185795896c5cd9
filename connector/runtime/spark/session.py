"""settings -> a Spark session for one run: what sink and source runs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from connector.errors import ConnectorError, FatalError
from connector.runtime.spark.session_builder import build_session
from connector.runtime.stop_signals import keep_handlers
from connector.settings import SinkSettings, SourceSettings


@contextmanager
def open_session(settings: SinkSettings | SourceSettings) -> Iterator[SparkSession]:
    """Start Spark for these settings, and stop it in the end.

    Raises:
        FatalError: Spark's JVM ended by itself meanwhile.
    """
    with keep_handlers():
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
