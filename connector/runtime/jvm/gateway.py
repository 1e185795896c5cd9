"""Spark settings -> the driver's JVM, started without a setting on a command line, where everybody could read it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import javaproperties

from connector.redaction import is_secret

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"


def launch_jvm(conf: Mapping[str, str]) -> Any:
    """Start the JVM with these settings (about 3 s); return PySpark's gateway to it.

    PySpark itself would write each setting on the command line. They go through a file that nobody else can read, in a
    folder of its own that is gone when the JVM is up. OSError: no room for it. PySparkRuntimeError: no JVM.
    """
    from pyspark.java_gateway import launch_gateway

    # A folder made so is its owner's alone, and so are the files in it.
    with (
        TemporaryDirectory(prefix="icebridge-start-") as folder,
        _clear_submit_args(*write_settings(conf, Path(folder))),
    ):
        return launch_gateway()


def write_settings(conf: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Write the settings into the folder; return the arguments of spark-submit that name them."""
    options = conf.get(JAVA_OPTIONS, "")
    if is_secret(options):
        words = shlex.split(options)
        lines = ['"{}"\n'.format(word.replace("\\", "\\\\").replace('"', '\\"')) for word in words]
        conf = {**conf, JAVA_OPTIONS: f"@{_write_private(folder / 'java.options', ''.join(lines))}"}
    file = _write_private(folder / "spark.properties", javaproperties.dumps(dict(conf), timestamp=False))
    # Without the flag Spark's own spark-defaults.conf would not be read beside a file of settings.
    return ("--properties-file", str(file), "--load-spark-defaults")


def _write_private(file: Path, text: str) -> Path:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as made:
        made.write(text)
    return file


@contextmanager
def _clear_submit_args(*arguments: str) -> Iterator[None]:
    before = os.environ.get(_SUBMIT)
    os.environ[_SUBMIT] = shlex.join(arguments) + " " + (before or "pyspark-shell")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SUBMIT]
        else:
            os.environ[_SUBMIT] = before
