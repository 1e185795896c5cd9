"""empty folder -> a schema registry with Confluent's API: one Apicurio process on loopback, for the demo and the tests.

Schemas are kept in memory and end with the process.
"""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.embedded.ports import LOOPBACK, free_ports
from connector.embedded.process import Child
from connector.errors import FatalError
from connector.runtime.archives import unpacked
from connector.runtime.java import java_home

_READY_S = 90.0
_STOP_S = 10.0
_POLL_S = 0.1
_API = "/apis/ccompat/v7"


class SchemaRegistry:
    """A registry over one home folder, where its output goes (`registry.log`). The process ends with this one."""

    def __init__(self, home: Path, port: int | None = None, heap_mb: int = 256) -> None:
        """Describe a registry; nothing runs yet. `port` None: any that is free."""
        self.home = Path(home).absolute()
        self.heap_mb = heap_mb
        self._port = port
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """`schema.registry.url` for clients. FatalError before the first start."""
        if self._port is None:
            raise FatalError("the embedded registry was not started yet: call start()")
        return f"http://{LOOPBACK}:{self._port}{_API}"

    @property
    def log(self) -> Path:
        """File that the registry writes its output to."""
        return self.home / "registry.log"

    def start(self) -> Self:
        """Start and wait until it answers (about 5 s). FatalError with the log's end if not."""
        if self._child is not None and self._child.returncode is None:
            return self
        self.home.mkdir(parents=True, exist_ok=True)
        self._port = self._port or free_ports(1)[0]
        self._child = Child(self._command(), self.log)
        limit = time.monotonic() + _READY_S
        while time.monotonic() < limit and self._child.returncode is None:
            if self._answers():
                return self
            self._child.wait(_POLL_S)
        self.kill()
        raise FatalError(f"the embedded registry did not start; the end of {self.log}:\n{self._log_end()}")

    def stop(self) -> None:
        """Stop it (SIGTERM, SIGKILL after 10 s)."""
        if self._child is not None:
            self._child.stop(_STOP_S)
            self._child = None

    def kill(self) -> None:
        """Kill it as a crash would (SIGKILL)."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _command(self) -> list[str]:
        java = java_home(need_module=None) / "bin" / "java"
        options = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self._port),
            "REGISTRY_DATASOURCE_URL": f"jdbc:h2:mem:registry_{os.getpid()}_{self._port};DB_CLOSE_DELAY=-1",
            # Ids by which Confluent's clients ask: those of contents, as in the recorded events.
            "registry.ccompat.legacy-id-mode.enabled": "false",
        }
        home = unpacked("registry")
        path = os.pathsep.join(map(str, [*sorted(home.glob("*-runner.jar")), *sorted((home / "lib").glob("*.jar"))]))
        defined = [f"-D{name}={value}" for name, value in options.items()]
        return [
            *(str(java), f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            *(*defined, "-cp", path, "io.quarkus.runner.GeneratedMain"),
        ]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - our own http URL
                return bool(answer.status == 200)  # noqa: PLR2004
        except (urllib.error.URLError, OSError):
            return False

    def _log_end(self, lines: int = 15) -> str:
        if not self.log.exists():
            return "(nothing was written)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
