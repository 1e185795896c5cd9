"""This process's environment -> the same with what PySpark and Spark's scripts look for, and nothing of another Spark.

Rules only. A profile may name the Python of another project, or a server of Spark Connect, for every program.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from pathlib import Path

_PYTHON = "PYSPARK_PYTHON"
_REMOTE = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables by which PySpark, and Spark's scripts, would look for a server of Spark Connect."""


def settle_environment(environ: MutableMapping[str, str], java_home: Path, python: str, *, runs_here: bool) -> None:
    """Name Java and the workers' Python for a session that is about to start.

    Tasks in this process's JVM are done by this very Python, which has their packages; on other machines by `python`,
    the setting, else by what the environment names.
    """
    environ["JAVA_HOME"] = str(java_home)
    if runs_here:
        environ[_PYTHON] = sys.executable
    elif python:
        # PySpark itself reads the setting only under spark-submit.
        environ[_PYTHON] = python
    else:
        environ.setdefault(_PYTHON, sys.executable)
    for name in _REMOTE:
        environ.pop(name, None)
