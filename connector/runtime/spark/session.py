"""settings -> a Spark session for one run: what sink and source runs share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError, Py4JNetworkError

from connector.errors import ConnectorError, FatalError
from connector.runtime.jvm.class_data import write_class_data
from connector.runtime.lifecycle import start_call
from connector.runtime.spark import session_builder
from connector.runtime.spark.driver_gateway import DriverGateway
from connector.runtime.spark.jvm_signals import leave_sigterm
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.stop_signals import keep_handlers
from connector.settings import SinkSettings, SourceSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDING_S = 2.0


def start_session(settings: SinkSettings | SourceSettings, *, lists_classes: bool = False) -> StartingSession:
    """Begin to start Spark for these settings, beside what else a start does.

    `lists_classes`: this is a run, and may leave an archive of Java's classes if it ends in good order.
    """
    app = f"icebridge {settings.name}"
    return session_builder.begin_session(app, settings.catalog, settings.spark, lists_classes=lists_classes)


def start_gateway(settings: SinkSettings | SourceSettings) -> StartingSession:
    """Begin to start a JVM that looks at the catalog, on this machine wherever Spark's master is."""
    here = {**settings.spark, "spark.master": "local[1]"}
    return session_builder.begin_session(f"icebridge {settings.name}", settings.catalog, here, without_spark=True)


@contextmanager
def open_gateway(starting: StartingSession) -> Iterator[DriverGateway]:
    """Wait for the JVM, and start no Spark in it. End it afterwards, unless it is Spark's."""
    with keep_handlers(), starting:
        gateway = starting.connect()
    try:
        yield DriverGateway(gateway, starting.conf)
    finally:
        starting.end()


@contextmanager
def open_driver(settings: SinkSettings | SourceSettings) -> Iterator[DriverGateway]:
    """Start a JVM that reads and changes tables without Spark, and end it afterwards.

    SIGTERM is left to this process, which finishes a commit in progress.
    """
    with start_gateway(settings) as starting, open_gateway(starting) as driver:
        leave_sigterm(driver.gateway.jvm)
        yield driver


@contextmanager
def open_session(
    settings: SinkSettings | SourceSettings, starting: StartingSession | None = None
) -> Iterator[SparkSession]:
    """Start Spark for these settings, or go on with what began to start, and stop it in the end.

    Raises:
        FatalError: Spark's JVM ended by itself meanwhile.
    """
    with keep_handlers(), starting or start_session(settings) as session:
        spark = session.finish()
    try:
        yield spark
        write_class_data(spark._jvm)  # noqa: SLF001 - PySpark has no other way to its JVM
    except Exception as error:
        if isinstance(error, ConnectorError) or not _is_jvm_gone(error, spark):
            raise
        raise FatalError(
            "Spark's JVM ended by itself (out of memory, or killed); give it more memory (spark.driver.memory, the "
            "limit "
            "of the container) or fewer cores (spark.master=local[2]); the current batch is repeated at the next start"
        ) from error
    finally:
        try:
            # By a thread with its own connection: a signal may have cut off a call on ours, whose answer is to come.
            start_call(spark.stop, "stop of Spark").result()
        except (Py4JError, OSError) as error:
            structlog.get_logger().debug("Spark is gone already", reason=str(error))


def _is_jvm_gone(error: BaseException | None, spark: SparkSession) -> bool:
    """Tell whether Py4J found nobody at the other end; it wraps that in other errors.

    Of a call whose answer did not come it says no more than that there was an error: then the process tells.
    """
    while error is not None:
        if isinstance(error, (Py4JNetworkError, ConnectionRefusedError)):
            return True
        if type(error) is Py4JError:
            return _has_ended(spark)
        error = error.__cause__ or error.__context__
    return False


def _has_ended(spark: SparkSession) -> bool:
    """Tell whether the JVM that we started has ended; connections end before their process does."""
    process = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001 - as `session_builder` gives it
    if process is None:
        return False
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return False
    return True
