"""the JVM that spark-submit (or Spark's operator) started -> what it was told, and whether it has our jars."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import structlog

from connector.errors import FatalError
from connector.runtime.jvm.lockfile import LOCK_FILE, parse_lockfile

_PORT = "PYSPARK_GATEWAY_PORT"
_AT_START_ONLY = ("spark.driver.extraJavaOptions", "spark.driver.memory", "spark.driver.defaultJavaOptions")
_NEEDED = {
    "org.apache.iceberg.spark.SparkCatalog": "iceberg-spark-runtime",
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "spark-sql-kafka-0-10",
    "org.apache.kafka.clients.producer.KafkaProducer": "kafka-clients",
}


def is_submitted() -> bool:
    """Tell whether this process was started by spark-submit: its JVM runs already."""
    return _PORT in os.environ


def submitted_conf() -> dict[str, str]:
    """Return the settings that spark-submit was given; connects to its JVM."""
    from pyspark import SparkConf, SparkContext

    from connector.runtime.jvm.java_names import remember_java_names

    SparkContext._ensure_initialized()  # noqa: SLF001 - as SparkContext itself does it
    gateway = SparkContext._gateway  # noqa: SLF001
    assert gateway is not None
    remember_java_names(gateway)
    SparkContext._jvm = gateway.jvm  # noqa: SLF001
    return {key: value for key, value in SparkConf().getAll() if key.startswith("spark.")}


def settle_submitted(conf: Mapping[str, str], submitted: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a session in that JVM: what it was told wins, what came too late is left out."""
    late = {key for key in _AT_START_ONLY if key not in submitted}
    return {key: value for key, value in conf.items() if key not in late}


def check_jars() -> None:
    """Raise FatalError with what spark-submit must be given where its JVM lacks a jar of ours."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    loader, missing = jvm.java.lang.Thread.currentThread().getContextClassLoader(), []
    for name, jar in _NEEDED.items():
        try:
            loader.loadClass(name)
        except Py4JJavaError:
            missing.append(jar)
    if missing:
        raise FatalError(_remedy(f"a JVM without {', '.join(missing)}", ("spark",)))


def check_stores(required: Sequence[str], guessed: Sequence[str]) -> None:
    """Raise FatalError where spark-submit was not given jars that the catalog needs; warn where it may need some."""
    if required:
        raise FatalError(_remedy(f"a JVM without the jars for {', '.join(required)}", required))
    if guessed:
        structlog.get_logger().warning(_remedy(f"a JVM that may lack jars for {', '.join(guessed)}", guessed))


def _remedy(what: str, components: Sequence[str]) -> str:
    locked = parse_lockfile(LOCK_FILE.read_text("utf-8"))
    files = ",".join(f"FOLDER/{artifact.file_name}" for name in components for artifact in locked[name])
    return (
        f"spark-submit started {what}; say `icebridge jars --to FOLDER {' '.join(components)}` and give spark-submit "
        f"--jars {files}"
    )
