"""settings -> a Spark session that reads Kafka and writes Iceberg, and its Python workers warmed up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import attrs
import structlog

from connector.errors import FatalError
from connector.redaction import SPARK_REGEX
from connector.runtime.jvm.gateway import JAVA_OPTIONS
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java
from connector.runtime.jvm.user_jars import missing_components
from connector.runtime.spark.cluster_security import OPEN_NOTE, is_open, secure_cluster
from connector.runtime.spark.driver_jvm import DriverJvm, fits_class_path, start_driver_jvm
from connector.runtime.spark.job_pools import POOLS
from connector.runtime.spark.packages import packages_root, packages_zip
from connector.runtime.spark.python_workers import MEMORY_ENVIRONMENT
from connector.runtime.spark.spark_home import find_spark_home
from connector.runtime.spark.submitted import check_jars, check_stores, is_submitted, settle_submitted, submitted_conf
from connector.runtime.stop_signals import keep_handlers
from connector.settings.iceberg.required_jars import complete_properties, guess_components, required_components

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_LOG_CONFIG = Path(__file__).with_name("log4j2-spark.properties")

CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""How a query writes its checkpoint: ours is in a local folder that ends with the run. By Spark's defaults its files,
which have the offsets of each batch, take some twenty processes a batch (Hadoop's chmod and readlink)."""
DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    **CHECKPOINTS,
    **POOLS,
    # Batches into Python workers: large enough for columns, small enough for the processor's caches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    "spark.python.worker.reuse": "true",
    **{f"spark.executorEnv.{name}": value for name, value in MEMORY_ENVIRONMENT.items()},
    # Else PySpark tells the JVM for each column of an expression which line of ours made it: ten calls, for messages
    # that name our lines to people who know theirs.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark's own leaves out keys of accounts, credentials and logins.
    "spark.redaction.regex": SPARK_REGEX,
    "spark.sql.redaction.options.regex": f"{SPARK_REGEX}|url",
}


_AT_START = {
    # The second, slow compiler takes what is called three times as often as by default: a start is seconds of code that
    # runs some thousand times, and what a batch is made of is called far more often soon. Ten times cost the source's
    # first changes a fifth of their time, default the sink's first batches a third of their CPU.
    "-XX:Tier4InvocationThreshold": "15000",
    "-XX:Tier4MinInvocationThreshold": "1800",
    "-XX:Tier4CompileThreshold": "45000",
    "-XX:Tier4BackEdgeThreshold": "120000",
    # Spark's classes fill the default of 21 MB three times, with a full collection each.
    "-XX:MetaspaceSize": "256m",
}
"""Options of the JVM by which it starts in less time."""


class CatalogProperties(Protocol):
    """What is needed to know of an Iceberg catalog."""

    @property
    def name(self) -> str:
        """Name in Spark."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Iceberg's catalog properties, with `type` or `catalog-impl`; `fs.*` and `dfs.*` are Hadoop's."""


def catalog_conf(catalog: CatalogProperties) -> dict[str, str]:
    """Return the `spark.sql.catalog.<name>` settings of an Iceberg catalog (Iceberg docs, Spark configuration).

    Hadoop's own keys are handed over a second time behind `hadoop.`, where Iceberg's Spark catalog looks for them.
    """
    base = f"spark.sql.catalog.{catalog.name}"
    hadoop = {f"hadoop.{key}": value for key, value in catalog.properties.items() if key.startswith(("fs.", "dfs."))}
    # What a cached table says may be old, and the cache hides the catalog's namespaces.
    own = {base: SPARK_CATALOG, f"{base}.cache-enabled": "false"}
    return {**own, **{f"{base}.{key}": value for key, value in {**catalog.properties, **hadoop}.items()}}


def java_options(given: str) -> str:
    """Return the driver's JVM options: `given` and those of ours that it says nothing about.

    Two collectors at once stop the JVM, so ours (parallel: the cheapest per byte on few cores) yields to any other.
    A thread stack of 4 MB, because long plans overflowed the default one on a stream's thread. Less is compiled and
    collected while everything starts, see `_AT_START`.
    """
    words = given.split()
    ours = [f"{name}={value}" for name, value in _AT_START.items() if not any(word.startswith(name) for word in words)]
    if not any(word.startswith("-XX:+Use") and word.endswith("GC") for word in words):
        ours.append("-XX:+UseParallelGC")
    if not any(word.startswith("-Xss") for word in words):
        ours.append("-Xss4m")
    if not any(word.startswith(("-Dlog4j2.configurationFile=", "-Dlog4j.configurationFile=")) for word in words):
        ours.append(f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}")
    return " ".join([*ours, given]).strip()


def is_local(master: str) -> bool:
    """Tell whether driver and executors are one process (`local`, `local[...]`; not `local-cluster[...]`)."""
    return master == "local" or master.startswith("local[")


def session_conf(
    app: str, catalog: CatalogProperties, spark: Mapping[str, str], jar_files: Iterable[Path], root: Path
) -> dict[str, str]:
    """Return every Spark setting of a session; the user's `spark` wins, lists (jars, extensions) are joined.

    `root` is the folder that holds our packages, for workers on this machine when they are not installed.
    """
    known = {
        f"spark.sql.catalog.{catalog.name}.{key}": text for key, text in complete_properties(catalog.properties).items()
    }
    conf = {**DEFAULTS, "spark.app.name": app, **catalog_conf(catalog), **known, **spark}
    conf["spark.jars"] = _join_list(*map(str, jar_files), spark.get("spark.jars", ""))
    if not conf["spark.jars"]:
        del conf["spark.jars"]
    conf["spark.sql.extensions"] = _join_list(EXTENSIONS, spark.get("spark.sql.extensions", ""))
    conf[JAVA_OPTIONS] = java_options(spark.get(JAVA_OPTIONS, ""))
    if is_local(conf["spark.master"]):
        conf.setdefault("spark.python.daemon.module", "connector.worker_daemon")
        conf.setdefault("spark.driver.host", "127.0.0.1")
        conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
        if not {"site-packages", "dist-packages"} & set(root.parts):
            given = conf.get("spark.executorEnv.PYTHONPATH") or os.environ.get("PYTHONPATH", "")
            conf["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), given]))
    else:
        conf |= secure_cluster(conf)
    return conf


def store_jars(catalog: CatalogProperties, spark: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the jars of stores and databases that the catalog needs and the user does not give, fetching them.

    FatalError: a jar is not to be had. One that may not be needed is then left out, with a warning.
    """
    required, guessed = _missing_stores(catalog, spark)
    jars = [jar for name in required for jar in _fetch_component(name)]
    for name in guessed:
        try:
            jars += _fetch_component(name)
        except FatalError as error:
            structlog.get_logger().warning("continuing without a store's jar", store=name, reason=str(error))
    return tuple(jars)


def _missing_stores(catalog: CatalogProperties, spark: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the components that the catalog needs and the user does not give, and those it may need."""
    base = f"spark.sql.catalog.{catalog.name}."
    over = {key.removeprefix(base): value for key, value in spark.items() if key.startswith(base)}
    known = {**catalog.properties, **getattr(catalog, "table_properties", {}), **over}
    shipped = find_spark_home() / "jars"
    required = missing_components(required_components(known), spark, shipped)
    return required, missing_components(guess_components(known), spark, shipped)


def _fetch_component(component: str) -> tuple[Path, ...]:
    try:
        return fetch_jars(component)
    except FatalError as error:
        raise FatalError(f"the catalog needs jars for {component}: {error}; or give them by spark.jars") from error


def _join_list(*parts: str) -> str:
    return ",".join(dict.fromkeys(word for part in parts for word in part.split(",") if word))


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

        PySparkRuntimeError: the JVM ended.
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
        """Wait for the JVM; return the session. PySparkRuntimeError: the JVM ended."""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        if self.jvm is not None:
            SparkContext._ensure_initialized(gateway=self.connect())  # noqa: SLF001 - PySpark's way to give it one
        is_cluster = not is_local(self.conf["spark.master"])
        if is_cluster and is_open(self.conf):
            structlog.get_logger().warning(OPEN_NOTE, master=self.conf["spark.master"])
        pairs = SparkConf(loadDefaults=False).setAll(list(self.conf.items()))
        with keep_handlers():  # at once: what follows takes a second, in which SIGINT was PySpark's
            SparkContext.getOrCreate(SparkConf().setAll(list(self.conf.items())))
        session = SparkSession.builder.config(conf=pairs).getOrCreate()
        disable_checksum_files(session)
        _ignore_sigterm(session)
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
    choice, home = find_java(), find_spark_home()
    os.environ["JAVA_HOME"] = str(choice.home())
    python, runs_here = spark.get("spark.pyspark.python"), is_local(spark.get("spark.master", DEFAULTS["spark.master"]))
    if python and not runs_here:
        # PySpark itself reads the setting only under spark-submit.
        os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars, is_up = (*fetch_jars("spark"), *store_jars(catalog, spark)), _is_jvm_up()
    class_path = jars if runs_here and not is_up and fits_class_path(spark, home) else ()
    conf = session_conf(app, catalog, spark, () if class_path else jars, packages_root())
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
    check_stores(*_missing_stores(catalog, given))
    conf = session_conf(app, catalog, given, (), packages_root())
    return settle_submitted(conf, submitted)


def disable_checksum_files(session: SparkSession) -> None:
    """Have the driver's JVM write no `.crc` file beside each local file of metadata.

    Hadoop starts a process (chmod) for every local file that it makes: that halves what a commit costs.
    """
    jvm = session._jvm  # noqa: SLF001
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(session.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    files.setWriteChecksum(False)


def _ignore_sigterm(session: SparkSession) -> None:
    """Leave SIGTERM to this process, which finishes the work in progress; the JVM ends with it.

    Supervisors send the signal to every process of a group at once, and a JVM that heeds it is gone first.
    """
    from py4j.protocol import Py4JJavaError

    signals = session._jvm.sun.misc  # noqa: SLF001
    with suppress(Py4JJavaError):  # a JVM that was told to leave signals alone (-Xrs)
        signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)


def _ship_packages(session: SparkSession) -> None:
    archive = str(packages_zip())
    session.sparkContext.addPyFile(archive)
    # addPyFile also puts its copy in front of the driver's own path; the driver keeps the packages it runs from.
    sys.path[:] = [entry for entry in sys.path if Path(entry).name != Path(archive).name]
