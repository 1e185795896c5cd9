"""properties -> a run of the sink in a process of its own -> exit code and JSON log lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from attrs import frozen

from connector.runtime.jvm.gateway import JAVA_OPTIONS
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java
from connector.runtime.spark.driver_jvm import locate_class_data
from connector.runtime.spark.session_conf import java_options
from connector.runtime.spark.spark_home import find_spark_home
from tests.harness.paths import PROJECT
from tests.runs.host import Host

COMMITTED = "batch committed"

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:Tier3InvocationThreshold=50 -XX:Tier3MinInvocationThreshold=25 "
    "-XX:Tier3CompileThreshold=500 -XX:Tier3BackEdgeThreshold=15000 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC -XX:NewSize=340m -XX:MetaspaceSize=256m -Xss4m -Djdk.lang.Process.launchMechanism=VFORK"
)
"""For a JVM that ends before code compiled by the slower of its two compilers has paid. The quicker one begins at a
quarter of the calls: of what tests do a third was interpreted still. It has the room for code that both would have: the
48 MB of one alone are full after some hundred tests, which ends the JVM. New objects have a third of the heap from the
start. Hadoop starts a process (chmod) for each local file that it makes: without Java's helper in between, at half the
cost."""
PATIENCE = 4
"""A busy machine takes so many times as long as tests say that a quiet one may: limits only tell what hangs."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a session of many plans that take few rows each: compiling them takes longer than what they do."""
Line = dict[str, Any]


@frozen
class Workspace:
    """A warehouse of its own with a JDBC catalog on SQLite, and the properties of the sink that fills it."""

    home: Path
    name: str
    properties: Mapping[str, str]
    host: Host | None = None

    @property
    def catalog(self) -> dict[str, str]:
        """What another Iceberg client needs to open the same catalog; its name is the workspace's."""
        return catalog(self.home)

    @property
    def warehouse(self) -> Path:
        """Where the files of all tables are."""
        return self.home / "warehouse"

    def file(self, extra: Mapping[str, str]) -> Path:
        """Write a properties file; `extra` stands on top."""
        path = self.home / f"{self.name}-{len(list(self.home.glob('*.properties')))}.properties"
        merged = {**self.properties, **extra}
        path.write_text("".join(f"{k}={v}\n" for k, v in merged.items()).replace("\\", "\\\\"), encoding="utf-8")
        return path

    def run(self, extra: Mapping[str, str] | None = None, *, timeout_s: float = 240) -> Run:
        """Run the sink once, up to the offsets at its start; in a process of its own where there is no host.

        A host has one Spark session for all: what only a new one takes (its master, its JVM) needs `start`.
        """
        if self.host is None:
            return self.start(extra, "--once").wait(timeout_s)
        said = self.host.call("run", "--once", str(self.file(extra or {})))
        return Run.of(said.code, said.log)

    def start(self, extra: Mapping[str, str] | None = None, *arguments: str, command: str = "run") -> Sink:
        """Start the sink, or another command with its file, in a process group of its own."""
        return Sink(self.file(extra or {}), arguments, command)


@frozen
class Run:
    """A finished run."""

    code: int
    lines: tuple[Line, ...]
    text: str

    @staticmethod
    def of(code: int, text: str) -> Run:
        """Read the JSON lines of a log; lines of Spark and the JVM are left out."""
        return Run(code, tuple(_lines(text)), text)

    @property
    def batches(self) -> list[Line]:
        """The line of each committed batch."""
        return [line for line in self.lines if line.get("event") == COMMITTED]

    def total(self, what: str) -> int:
        """The sum of one figure over all batches."""
        return sum(int(line.get(what, 0)) for line in self.batches)


class Sink:
    """A running sink; `kill` ends the process and its JVM as SIGKILL does, without a last word."""

    def __init__(self, properties: Path, arguments: tuple[str, ...], command: str = "run") -> None:
        self._log = properties.with_suffix(".log")
        line = [sys.executable, "-m", "connector", *command.split(), str(properties), *arguments]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                line, cwd=PROJECT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def text(self) -> str:
        """Everything written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def lines(self) -> list[Line]:
        """The JSON log lines so far."""
        return _lines(self.text())

    def wait(self, timeout_s: float) -> Run:
        """Wait for the end; a run that takes longer, with PATIENCE, is killed and raises with the end of its log."""
        try:
            code = self.process.wait(PATIENCE * timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(
                f"the sink did not end within {PATIENCE} x {timeout_s} s:\n{self.text()[-4000:]}"
            ) from None
        return Run.of(code, self.text())

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, step_s: float = 0.02) -> bool:
        """Wait until the condition holds (True), the sink ends (False) or time is over (PATIENCE; TimeoutError)."""
        end = time.monotonic() + PATIENCE * timeout_s
        while time.monotonic() < end:
            if condition():
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(step_s)
        raise TimeoutError(f"nothing within {PATIENCE} x {timeout_s} s:\n{self.text()[-4000:]}")

    def commits(self) -> int:
        """How many batches this process has reported as committed."""
        return sum(1 for line in self.lines() if line.get("event") == COMMITTED)

    def terminate(self, timeout_s: float = 60) -> Run:
        """Ask it to stop (SIGTERM) and wait."""
        self.process.terminate()
        return self.wait(timeout_s)

    def terminate_group(self, timeout_s: float = 60, number: int = signal.SIGTERM, *, workers: bool = True) -> Run:
        """Send a signal to its JVM and to the Python workers too, as supervisors do, and wait.

        A terminal does not know the workers: Spark makes a process group of them.
        """
        own = psutil.Process(self.process.pid)
        for one in (own, *own.children(recursive=True)):
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if workers or os.getpgid(one.pid) == self.process.pid:
                    one.send_signal(number)
        return self.wait(timeout_s)

    def wait_for_group(self, timeout_s: float) -> None:
        """Wait until its JVM, which outlives the process by what it does at its exit, is gone too (TimeoutError)."""
        end = time.monotonic() + PATIENCE * timeout_s
        while left := [one.pid for one in psutil.process_iter() if _is_in_group(one, self.process.pid)]:
            if time.monotonic() > end:
                raise TimeoutError(f"{left} did not end within {PATIENCE} x {timeout_s} s:\n{self.text()[-4000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to the whole process group; a sink that is gone already is all right."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def _is_in_group(process: psutil.Process, group: int) -> bool:
    """Tell whether it runs. One that has ended is in its group on until its parent, where that is gone the container's
    first process, has asked for its exit code; not every such process asks."""
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    return False


def catalog(home: Path) -> dict[str, str]:
    """Iceberg's properties of a workspace's catalog."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{home / 'catalog.db'}?synchronous=OFF",  # kept through kills; no machine loses its power
        "jdbc.schema-version": "V1",
        "warehouse": str(home / "warehouse"),
    }


def workspace(
    home: Path, name: str, bootstrap_servers: str, extra: Mapping[str, str], host: Host | None = None
) -> Workspace:
    """A workspace in `home`, which must exist; the connector is called `name`, its catalog as the folder.

    Spark keeps a session's catalogs by their names, and pytest gives no folder twice: no two tests share a warehouse.
    """
    (home / "warehouse").mkdir(exist_ok=True)
    properties = {
        "name": name,
        "bootstrap.servers": bootstrap_servers,
        "debezium.sink.type": "iceberg",
        "debezium.sink.iceberg.catalog-name": home.name,
        **{f"debezium.sink.iceberg.{key}": value for key, value in catalog(home).items()},
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        JAVA_OPTIONS: SHORT_LIVED,
        "listeners": "",
        "quarkus.http.port": "-1",
        "iceberg.maintenance.enabled": "false",
        **extra,
    }
    return Workspace(home, home.name, properties, host)


def quick_settings() -> dict[str, str]:
    """The settings with which sinks start from archived classes, in half of the time, where there is an archive.

    It is the product's own, in the cache folder: the first sink in a process of its own that ends leaves it.
    """
    conf = {JAVA_OPTIONS: java_options(SHORT_LIVED)}
    data = locate_class_data(find_java().java, conf, fetch_jars("spark"), find_spark_home())
    used = () if data is None else data.options(lists_classes=False)
    return {JAVA_OPTIONS: " ".join([SHORT_LIVED, *used])}


@contextmanager
def on_class_path(jars: Iterable[Path]) -> Iterator[None]:
    """Let a JVM that starts meanwhile have the jars where the product puts them: behind Spark's own."""
    os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, jars))
    try:
        yield
    finally:
        del os.environ["SPARK_DIST_CLASSPATH"]


def _lines(text: str) -> list[Line]:
    return [line for line in map(_parsed, text.splitlines()) if line is not None]


def _parsed(text: str) -> Line | None:
    if not text.startswith("{"):
        return None
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        return None
    return line if isinstance(line, dict) else None
