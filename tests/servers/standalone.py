"""Spark's own scripts -> a standalone cluster on loopback: master and workers, each a process, one secret."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
from pyspark.find_spark_home import _find_spark_home

from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.runtime.jvm.java import find_java_home

SECRET = "standalone-secret-4711"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class _Daemon(Server):
    """A master or a worker; it answers when its page does. Only clients that know the secret are let in."""

    ready_s = 240.0
    stop_s = 10.0

    def __init__(self, home: Path, name: str, *command: str) -> None:
        super().__init__(home)
        self.name = name
        self._command = command

    def page(self) -> dict[str, object]:
        """What its page says."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/json/", timeout=5) as answer:
            found: dict[str, object] = orjson.loads(answer.read())
            return found

    def _launch(self) -> ChildProcess:
        self._port = free_ports(1)[0]
        settings = self.home / "daemon.properties"
        lines = {"authenticate": "true", "network.crypto.enabled": "true", "authenticate.secret": SECRET}
        settings.write_text("".join(f"spark.{key} {text}\n" for key, text in lines.items()))
        home = Path(_find_spark_home())
        arguments = ("--host", LOOPBACK, "--webui-port", str(self._port), "--properties-file", str(settings))
        environ = {"SPARK_HOME": str(home), "JAVA_HOME": str(find_java_home()), "SPARK_DAEMON_MEMORY": "256m"}
        return ChildProcess(
            [str(home / "bin" / "spark-class"), self._command[0], *arguments, *self._command[1:]], self.log, environ
        )

    def _is_answering(self) -> bool:
        try:
            return bool(self.page())
        except (OSError, ValueError):
            return False


class StandaloneCluster:
    """A master and two workers of one core each; usable as a context manager."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        """Describe it; nothing runs yet."""
        (self._port,) = free_ports(1)
        self._master = _Daemon(home / "master", "master", MASTER, "--port", str(self._port))
        self._workers = [
            _Daemon(
                home / f"worker{number}",
                f"worker{number}",
                WORKER,
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(home / f"work{number}"),
                self.url,
            )
            for number in range(workers)
        ]
        self._home = home

    @property
    def url(self) -> str:
        """`spark.master`."""
        return f"spark://{LOOPBACK}:{self._port}"

    def finished(self) -> list[dict[str, object]]:
        """Return the applications that ran, as the master tells."""
        found = self._master.page()["completedapps"]
        assert isinstance(found, list)
        return found

    def __enter__(self) -> Self:
        for daemon in (self._master, *self._workers):
            daemon.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in (*self._workers, self._master):
            daemon.stop()
        for number in range(len(self._workers)):
            shutil.rmtree(self._home / f"work{number}", ignore_errors=True)
