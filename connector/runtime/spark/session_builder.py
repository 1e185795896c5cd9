"""settings -> a Spark session that reads Kafka and writes Iceberg, whose JVM starts beside what its caller does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs
import structlog

from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java
from connector.runtime.spark.cluster_security import OPEN_NOTE, is_open
from connector.runtime.spark.driver_jvm import (
    DriverJvm,
    add_defaults,
    find_other_options,
    fits_class_path,
    start_driver_jvm,
)
from connector.runtime.spark.jvm_signals import leave_sigterm
from connector.runtime.spark.packages import packages_root, packages_zip
from connector.runtime.spark.process_environment import settle_environment
from connector.runtime.spark.session_conf import DEFAULTS, CatalogProperties, is_local, session_conf
from connector.runtime.spark.spark_home import require_spark_home
from connector.runtime.spark.store_jars import fetch_store_jars, find_missing_stores
from connector.runtime.spark.submitted import check_jars, check_stores, is_submitted, settle_submitted, submitted_conf
from connector.runtime.spark.worker_sockets import find_socket_settings
from connector.runtime.stop_signals import keep_handlers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_session(app: str, catalog: CatalogProperties, spark: Mapping[str, str]) -> SparkSession:
    """Start Spark (3 to 5 s; more when jars are fetched) with Iceberg, Kafka and the catalog; return the session.

    Where spark-submit started this process, its JVM is taken, and what it was told wins over `spark`. Else sets
    JAVA_HOME, and PYSPARK_PYTHON, in this process's environment. Executors in other processes get our packages as a
    zip. Level and format of the JVM's log are those of `log4j2-spark.properties`.
    FatalError: no Java, jars not to be had, or a JVM of spark-submit's that was not given them.
    """
    with begin_session(app, catalog, spark) as starting:
        return starting.finish()


@attrs.frozen
class StartingSession:
    """A session whose JVM starts beside what its caller does; left before `finish`, the JVM ends."""

    conf: Mapping[str, str]
    jvm: DriverJvm | None

    def connect(self) -> Any:
        """Wait for the JVM; return PySpark's gateway to it, with no Spark context in it yet.

        FatalError: the JVM ended.
        """
        if self.jvm is not None:
            return self.jvm.connect()
        from pyspark import SparkContext

        SparkContext._ensure_initialized()  # noqa: SLF001 - as SparkContext itself does it
        return SparkContext._gateway  # noqa: SLF001

    def end(self) -> None:
        """End a JVM of this one's own, connected to or not."""
        if self.jvm is not None:
            self.jvm.starting.kill()

    def finish(self) -> SparkSession:
        """Wait for the JVM; return the session. FatalError: the JVM ended."""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        if self.jvm is not None:
            SparkContext._ensure_initialized(gateway=self.connect())  # noqa: SLF001 - PySpark's way to give it one
        is_cluster = not is_local(self.conf["spark.master"])
        if is_cluster and is_open(self.conf):
            structlog.get_logger().warning(OPEN_NOTE, master=self.conf["spark.master"])
        conf = self.conf if is_cluster else {**self.conf, **find_socket_settings(self.conf)}
        pairs = SparkConf(loadDefaults=False).setAll(list(conf.items()))
        with keep_handlers():  # at once: what follows takes a second, in which SIGINT was PySpark's
            SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
        session = SparkSession.builder.config(conf=pairs).getOrCreate()
        disable_checksum_files(session)
        leave_sigterm(session._jvm)  # noqa: SLF001
        if is_cluster:
            _ship_packages(session)
        return session

    def __enter__(self) -> Self:
        """It starts already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a JVM that was not waited for."""
        if self.jvm is not None:
            self.jvm.starting.close()


def begin_session(
    app: str,
    catalog: CatalogProperties,
    spark: Mapping[str, str],
    *,
    lists_classes: bool = False,
    without_spark: bool = False,
) -> StartingSession:
    """Begin to start Spark, as `build_session`; returns once its JVM is starting.

    `lists_classes`: the JVM lists its classes where there is no archive of them, for `write_class_data`;
    `without_spark`: nobody will call `finish`, only `connect`.
    """
    if is_submitted():
        return StartingSession(_take_jvm(app, catalog, spark), None)
    return _start_jvm(app, catalog, spark, lists_classes=lists_classes, without_spark=without_spark)


def _start_jvm(
    app: str, catalog: CatalogProperties, spark: Mapping[str, str], *, lists_classes: bool, without_spark: bool
) -> StartingSession:
    """Start a JVM unless one runs."""
    choice, home = find_java(), require_spark_home()
    spark = add_defaults(spark, home)
    runs_here = is_local(spark.get("spark.master", DEFAULTS["spark.master"]))
    settle_environment(os.environ, choice.home(), spark.get("spark.pyspark.python", ""), runs_here=runs_here)
    jars, is_up = (*fetch_jars("spark"), *fetch_store_jars(catalog, spark)), _is_jvm_up()
    class_path = jars if runs_here and not is_up and fits_class_path(spark, home) else ()
    options = find_other_options(spark, home)
    conf = session_conf(app, catalog, spark, () if class_path else jars, packages_root(), options)
    if is_up:
        return StartingSession(conf, None)
    started = start_driver_jvm(
        choice.java, conf, class_path, home, lists_classes=lists_classes, without_spark=without_spark
    )
    return StartingSession(conf, started)


def _is_jvm_up() -> bool:
    """Tell whether PySpark has started a JVM; nothing else of it tells. What is not imported has not."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None  # noqa: SLF001


def _take_jvm(app: str, catalog: CatalogProperties, spark: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session in the JVM that spark-submit started."""
    submitted = submitted_conf()
    check_jars()
    given = {**spark, **submitted}
    check_stores(*find_missing_stores(catalog, given))
    conf = session_conf(app, catalog, given, (), packages_root())
    return settle_submitted(conf, submitted)


def disable_checksum_files(session: SparkSession) -> None:
    """Have the driver's JVM write no `.crc` file beside each local file of metadata.

    Hadoop starts a process (chmod) for every local file that it makes: that halves what a commit costs.
    """
    jvm = session._jvm  # noqa: SLF001
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(session.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    files.setWriteChecksum(False)


def _ship_packages(session: SparkSession) -> None:
    archive = str(packages_zip())
    session.sparkContext.addPyFile(archive)
    # addPyFile also puts its copy in front of the driver's own path; the driver keeps the packages it runs from.
    sys.path[:] = [entry for entry in sys.path if Path(entry).name != Path(archive).name]
