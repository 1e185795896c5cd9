"""settings -> every Spark setting of a session: ours, the catalog's, the JVM's options, and what the user says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from connector.redaction import SPARK_REGEX
from connector.runtime.jvm.collector import names_collector
from connector.runtime.jvm.gateway import JAVA_OPTIONS, LOOPBACK
from connector.runtime.spark.cluster_security import secure_cluster
from connector.runtime.spark.job_pools import POOLS
from connector.runtime.spark.python_workers import MEMORY_ENVIRONMENT
from connector.settings.iceberg.required_jars import complete_properties

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
    # The driver keeps these plans with or without its pages. A batch makes five; one that asks its table for the rows
    # of changed keys has a megabyte of them. Spark's own thousand fill the heap.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.session.timeZone": "UTC",
    # Whatever a cluster's own defaults say: a second copy of a task that publishes would do so behind later events.
    "spark.speculation": "false",
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


def java_options(given: str, elsewhere: str = "") -> str:
    """Return the driver's JVM options: `given`, and those of ours of which neither it nor `elsewhere` says anything.

    Two collectors at once stop the JVM, so ours (parallel: the cheapest per byte on few cores) yields to any other.
    A thread stack of 4 MB, because long plans overflowed the default one on a stream's thread. Less is compiled and
    collected while everything starts, see `_AT_START`.
    """
    words = [*given.split(), *elsewhere.split()]
    ours = [f"{name}={value}" for name, value in _AT_START.items() if not any(word.startswith(name) for word in words)]
    if not names_collector(words):
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
    app: str,
    catalog: CatalogProperties,
    spark: Mapping[str, str],
    jar_files: Iterable[Path],
    root: Path,
    elsewhere: str = "",
) -> dict[str, str]:
    """Return every Spark setting of a session; the user's `spark` wins, lists (jars, extensions) are joined.

    `root` is the folder that holds our packages, for workers on this machine when they are not installed; `elsewhere`
    are options that the driver's JVM gets from elsewhere.
    """
    known = {
        f"spark.sql.catalog.{catalog.name}.{key}": text for key, text in complete_properties(catalog.properties).items()
    }
    conf = {**DEFAULTS, "spark.app.name": app, **catalog_conf(catalog), **known, **spark}
    conf["spark.jars"] = _join_list(*map(str, jar_files), spark.get("spark.jars", ""))
    if not conf["spark.jars"]:
        del conf["spark.jars"]
    conf["spark.sql.extensions"] = _join_list(EXTENSIONS, spark.get("spark.sql.extensions", ""))
    conf[JAVA_OPTIONS] = java_options(spark.get(JAVA_OPTIONS, ""), elsewhere)
    if is_local(conf["spark.master"]):
        conf.setdefault("spark.python.daemon.module", "connector.worker_daemon")
        conf.setdefault("spark.driver.host", LOOPBACK)
        conf.setdefault("spark.driver.bindAddress", LOOPBACK)
        if not {"site-packages", "dist-packages"} & set(root.parts):
            given = conf.get("spark.executorEnv.PYTHONPATH") or os.environ.get("PYTHONPATH", "")
            conf["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), given]))
    else:
        conf |= secure_cluster(conf)
    return conf


def _join_list(*parts: str) -> str:
    return ",".join(dict.fromkeys(word for part in parts for word in part.split(",") if word))
