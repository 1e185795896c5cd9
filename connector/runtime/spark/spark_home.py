"""environment -> the folder of the Spark that runs here: its jars and scripts."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from connector.errors import FatalError


def find_spark_home() -> Path:
    """Return SPARK_HOME, else the folder of the pyspark package, which is not imported for it (that takes 0.2 s).

    FatalError: there is neither.
    """
    configured = os.environ.get("SPARK_HOME")
    if configured:
        return Path(configured)
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise FatalError(
            "Spark is not here: there is no pyspark package, and SPARK_HOME is not set; install pyspark (pip)"
        )
    return Path(package.origin).parent


def require_spark_home() -> Path:
    """Return the same folder, which is to start a JVM. FatalError: it holds no Spark, or one of another line."""
    home, wanted = find_spark_home(), version("pyspark")
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    found = jars[0].stem.rpartition("-")[2] if jars else "none"
    if _line_of(found) != _line_of(wanted):
        raise FatalError(
            f"the Spark in {home}, which SPARK_HOME names, is {found}, and this Python has PySpark {wanted}; unset "
            f"SPARK_HOME, or name a folder of Spark {_line_of(wanted)}"
        )
    return home


def _line_of(release: str) -> str:
    return ".".join(release.split(".")[:2])
