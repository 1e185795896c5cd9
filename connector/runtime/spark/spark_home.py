"""environment -> the folder of the Spark that runs here: its jars and scripts."""

from __future__ import annotations

import os
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
