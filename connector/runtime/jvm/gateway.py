"""Spark settings -> the driver's JVM, started without a setting on a command line, where everybody could read it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import javaproperties

from connector.errors import FatalError
from connector.redaction import is_secret

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""Options that stand in front of those."""
MORE_JARS = "SPARK_DIST_CLASSPATH"
"""Environment variable with what Spark's scripts put behind Spark's own jars."""
EXTRA_CLASS_PATH = "spark.driver.extraClassPath"
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
_SCRIPT_OPTIONS = ("SPARK_SUBMIT_OPTS", "SPARK_JAVA_OPTS", "SPARK_DRIVER_MEMORY", "SPARK_MEM", "SPARK_PREPEND_CLASSES")
_OPEN_MODULES = tuple(
    f"--add-opens={package}=ALL-UNNAMED"
    for package in (
        *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
        *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "security.action", "util.calendar")),
        "java.base/java.util.concurrent",
        "java.base/java.util.concurrent.atomic",
        "java.base/jdk.internal.ref",
        "java.security.jgss/sun.security.krb5",
    )
)
"""What Spark's launcher opens of Java's own modules to the libraries that stores and catalogs bring."""
LOOPBACK = "127.0.0.1"
_NAME, _ADDRESS = "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP"
"""Environment variables by which Spark knows this machine, instead of asking for its name."""
_LOCALE, _ASCII = "LC_ALL", ("C", "POSIX")
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_S, _END_S = 0.01, 20.0


class StartingJvm:
    """A JVM that starts while its caller does something else; left without `connect`, it ends.

    PySpark itself would write each setting on the command line. They go through a file that nobody else can read, in a
    folder of its own that is gone when the JVM is up.
    """

    def __init__(
        self, spark_home: Path, conf: Mapping[str, str], class_path: Sequence[Path] = (), java: Path | None = None
    ) -> None:
        """Start it; `class_path` stands behind Spark's own jars.

        `java` is the program that starts it without Spark's scripts, which take seconds: for a JVM in which there will
        be no Spark context, and where Spark's own files of settings say nothing. OSError: no room, or no spark-submit.
        """
        # A folder made so is its owner's alone, and so are the files in it.
        self._folder = Path(tempfile.mkdtemp(prefix="icebridge-start-"))
        self._told, self._is_connected = self._folder / "gateway", False
        try:
            self.process = subprocess.Popen(
                _submit_command(spark_home, conf, self._folder)
                if java is None
                else [str(java), write_arguments(spark_home, conf, class_path, self._folder)],
                # The JVM ends when this process is gone: it reads its input's end.
                stdin=subprocess.PIPE,
                env=jvm_environment(conf, self._told, class_path),
                preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does it: nothing else runs between
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def connect(self) -> Any:
        """Wait until the JVM is up; return PySpark's gateway to it.

        FatalError: it ended.
        """
        from pyspark.java_gateway import launch_gateway

        from connector.runtime.jvm.java_names import remember_java_names

        try:
            while not self._told.is_file() and self.process.poll() is None:
                time.sleep(_POLL_S)
            if not self._told.is_file():
                raise FatalError(
                    f"Spark's JVM did not start (exit code {self.process.returncode}); it says why above: check "
                    "spark.driver.memory against the memory that is free, spark.driver.extraJavaOptions, and in the "
                    "environment SPARK_HOME, JAVA_TOOL_OPTIONS and PYSPARK_SUBMIT_ARGS"
                )
            with _set_environment(_read_gateway(self._told.read_bytes())):
                gateway = launch_gateway()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        gateway.proc, self._is_connected = self.process, True
        remember_java_names(gateway)
        return gateway

    def close(self) -> None:
        """End a JVM that nobody has connected to."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if not self._is_connected:
            self.kill()

    def kill(self) -> None:
        """End the JVM at once: what it has not done yet nobody waits for."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(_END_S)

    def __enter__(self) -> Self:
        """It starts already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it unless somebody has connected."""
        self.close()


def is_changed_by_environment() -> bool:
    """Tell whether the environment says something of how Spark's scripts are to start the JVM."""
    return any(os.environ.get(name) for name in (_SUBMIT, MORE_JARS, *_SCRIPT_OPTIONS))


def _submit_command(spark_home: Path, conf: Mapping[str, str], folder: Path) -> list[str]:
    arguments = shlex.split(os.environ.get(_SUBMIT, "pyspark-shell"))
    return [str(spark_home / "bin" / "spark-submit"), *write_settings(conf, folder), *arguments]


def write_settings(conf: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Write the settings into the folder; return the arguments of spark-submit that name them."""
    options = conf.get(JAVA_OPTIONS, "")
    if is_secret(options):
        file = _write_private(folder / "java.options", _quote_words(shlex.split(options)))
        conf = {**conf, JAVA_OPTIONS: f"@{file}"}
    file = _write_private(folder / "spark.properties", javaproperties.dumps(dict(conf), timestamp=False))
    # Without the flag Spark's own spark-defaults.conf would not be read beside a file of settings.
    return ("--properties-file", str(file), "--load-spark-defaults")


def write_arguments(spark_home: Path, conf: Mapping[str, str], class_path: Sequence[Path], folder: Path) -> str:
    """Write what Spark's scripts would start Java with into the folder; return the argument that names it.

    The class path is theirs to the letter: an archive of its classes serves no other.
    """
    jars = spark_home / "jars"
    spark = (str(spark_home / "conf"), *map(str, sorted(jars.glob("slf4j-api-*.jar"))), f"{jars}/*")
    entries = (conf.get(EXTRA_CLASS_PATH, ""), *spark, *map(str, class_path))
    heap = f"-Xmx{conf.get('spark.driver.memory', '1g')}"
    words = ["-cp", os.pathsep.join(filter(None, entries)), heap, *_OPEN_MODULES]
    words += [word for name in (DEFAULT_JAVA_OPTIONS, JAVA_OPTIONS) for word in shlex.split(conf.get(name, ""))]
    words += ["org.apache.spark.api.python.PythonGatewayServer"]
    return f"@{_write_private(folder / 'java.arguments', _quote_words(words))}"


def _quote_words(words: Iterable[str]) -> str:
    """Return a file of Java's arguments, one in a line."""
    return "".join('"{}"\n'.format(word.replace("\\", "\\\\").replace('"', '\\"')) for word in words)


def _write_private(file: Path, text: str) -> Path:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as writer:
        writer.write(text)
    return file


def jvm_environment(conf: Mapping[str, str], answer_file: Path, class_path: Iterable[Path]) -> dict[str, str]:
    """Return this process's environment with what Spark's scripts, its gateway and Spark look for there."""
    jars = [*filter(None, [os.environ.get(MORE_JARS)]), *map(str, class_path)]
    added = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer_file), "SPARK_CONNECT_MODE": "0"}
    # Spark asks for the machine's own name, also where nobody else is to find the driver: one that no server knows
    # would end the JVM.
    if conf.get("spark.driver.host") == LOOPBACK and _ADDRESS not in os.environ:
        added[_NAME] = os.environ.get(_NAME, LOOPBACK)
    if os.environ.get(_LOCALE) in _ASCII:
        # Python takes names of files for UTF-8 there. Java would open none that has a letter beyond ASCII.
        added[_LOCALE] = "C.UTF-8"
    return {**os.environ, **added, **({MORE_JARS: os.pathsep.join(jars)} if jars else {})}


def _ignore_interrupts() -> None:
    """Leave what a terminal sends to its whole group to this process, which stops the JVM when its work is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _read_gateway(answer: bytes) -> dict[str, str]:
    """Read port and secret as Spark's gateway writes them: each number in 4 bytes, the greatest first."""
    port, length = struct.unpack_from(">ii", answer)
    return {_PORT: str(port), _SECRET: answer[8 : 8 + length].decode()}


@contextmanager
def _set_environment(added: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
