"""settings -> a Spark session of this process in a JVM of its own, by which tests read tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from connector.runtime.jvm.java import find_java_home
from tests.runs.processes import on_class_path

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def start_reading_spark(
    app: str,
    cores: int,
    settings: Mapping[str, str],
    jars: Iterable[Path],
    prepare: Callable[[Any], None] = lambda _: None,
) -> SparkSession:
    """Start it with these jars on its class path; `prepare` gets PySpark's gateway before there is a session."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list({**_SETTINGS, **settings}.items()))
    conf.setMaster(f"local[{cores}]").setAppName(app)
    with on_class_path(jars):
        gateway = launch_gateway(conf)
    prepare(gateway)
    SparkContext._ensure_initialized(gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()
