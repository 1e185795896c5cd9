"""empty folder -> a schema registry with Confluent's API: one Apicurio process on loopback, for the demo and the tests.

Schemas are kept in memory and end with the process.
"""

from __future__ import annotations

import os
import urllib.error
from pathlib import Path

from connector.demo.servers.ports import DIRECT, LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.runtime.jvm.archives import unpack_archive
from connector.runtime.jvm.collector import collector_options
from connector.runtime.jvm.java import find_java_home

_API = "/apis/ccompat/v7"


class SchemaRegistryServer(Server):
    """A registry over one home folder, where its output goes (`registry.log`); it answers after about 5 s."""

    name = "registry"
    ready_s = 240.0
    stop_s = 10.0

    def __init__(self, home: Path, port: int | None = None, heap_mb: int = 256) -> None:
        """Describe a registry; nothing runs yet. `port` None: any that is free."""
        super().__init__(home)
        self.heap_mb = heap_mb
        self._port = port

    @property
    def url(self) -> str:
        """`schema.registry.url` for clients. FatalError before the first start."""
        return f"http://{LOOPBACK}:{self.port}{_API}"

    def _launch(self) -> ChildProcess:
        self._port = self._port or free_ports(1)[0]
        return ChildProcess(self._command(), self.log)

    def _command(self) -> list[str]:
        java = find_java_home(need_module=None) / "bin" / "java"
        options = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self._port),
            "REGISTRY_DATASOURCE_URL": f"jdbc:h2:mem:registry_{os.getpid()}_{self._port};DB_CLOSE_DELAY=-1",
            # Ids by which Confluent's clients ask: those of contents, as in the recorded events.
            "registry.ccompat.legacy-id-mode.enabled": "false",
        }
        home = unpack_archive("registry")
        path = os.pathsep.join(map(str, [*sorted(home.glob("*-runner.jar")), *sorted((home / "lib").glob("*.jar"))]))
        defined = [f"-D{name}={value}" for name, value in options.items()]
        return [
            *(str(java), *collector_options("-XX:+UseSerialGC")),
            *(f"-Xmx{self.heap_mb}m", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            *(*defined, "-cp", path, "io.quarkus.runner.GeneratedMain"),
        ]

    def _is_answering(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)  # noqa: PLR2004
        except (urllib.error.URLError, OSError):
            return False
