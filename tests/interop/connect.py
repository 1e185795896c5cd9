"""jars -> a Kafka Connect worker (standalone, one process on loopback), its connectors by REST.

The worker's own jars are its class path; the sink connector with Debezium's transforms is a plugin, a folder of links.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.errors import FatalError
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java_home
from tests.interop.lag import ends, lag, observer
from tests.model.recordings import Record

_CALL_S = 30.0
_STEP_S = 0.2
LOG_CONFIG = Path(__file__).with_name("log4j2-connect.properties")
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
PLUGINS = ("jdbc-sink", "mariadb-source", "mysql-source", "avro-converter")


class ConnectorFailed(AssertionError):
    """A connector or a task of it failed; the message is the worker's trace."""


class Connect(Server):
    """A worker over one home folder, beside a broker; it answers after about 6 s. Output goes to `connect.log`."""

    name = "connect"
    ready_s = 240.0
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    plugins: tuple[str, ...] = PLUGINS
    java_options: tuple[str, ...] = ("-XX:+UseSerialGC",)

    def __init__(self, home: Path, bootstrap_servers: str, heap_mb: int = 512) -> None:
        """Describe it; nothing runs yet."""
        super().__init__(home)
        self.bootstrap_servers = bootstrap_servers
        self.heap_mb = heap_mb

    @property
    def url(self) -> str:
        """The address of its REST server."""
        return f"http://{LOOPBACK}:{self.port}"

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector. ConnectorFailed with the worker's reason when it refuses the configuration."""
        self._call("POST", "/connectors", {"name": name, "config": dict(config)})

    def delete(self, name: str) -> None:
        """Delete a connector; its tasks are stopped when this returns, its offsets stay in its group."""
        self._call("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """Raise ConnectorFailed with the trace when connector or task failed, FatalError when the worker ended."""
        if self.pid is None:
            raise FatalError(f"the Connect worker does not run; the end of {self.log}:\n{self.log_end(30)}")
        status = self._call("GET", f"/connectors/{name}/status")
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise ConnectorFailed(f"connector {name}, task {part.get('id', '-')}:\n{part.get('trace')}")

    def wait_consumed(self, name: str, records: Iterable[Record], timeout_s: float = 90) -> None:
        """Wait until the sink connector has put, and committed, all that matters of the records that its topics hold.

        ConnectorFailed as soon as it fails; TimeoutError with the lag that was left and the log's end.
        """
        wanted = ends(records)
        left = dict(wanted)
        with observer(self.bootstrap_servers, f"connect-{name}") as group:

            def done() -> bool:
                nonlocal left
                self.check(name)
                left = lag(group, wanted)
                return not left

            if not _wait(done, timeout_s):
                raise TimeoutError(f"connector {name} left {left} after {timeout_s} s:\n{self.log_end(30)}")

    def _launch(self) -> ChildProcess:
        link_plugins(self.home / "plugins", self.plugins)
        self._port = free_ports(1)[0]
        config = self.home / "worker.properties"
        values = self._properties()
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        java = find_java_home(need_module=None) / "bin" / "java"
        options = (f"-Xmx{self.heap_mb}m", *self.java_options, f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}")
        class_path = os.pathsep.join(map(str, fetch_jars("connect")))
        program = ("-cp", class_path, self.program, str(config))
        return ChildProcess((str(java), *options, *program), self.log)

    def _properties(self) -> dict[str, str]:
        return worker_properties(self.home, self.bootstrap_servers, self.url)

    def _is_answering(self) -> bool:
        try:
            self._call("GET", "/connectors")
        except (OSError, ConnectorFailed):
            return False
        return True

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_CALL_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ConnectorFailed(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
        return json.loads(text) if text else None


def worker_properties(home: Path, bootstrap_servers: str, url: str) -> dict[str, str]:
    """The worker's properties: JSON with schema blocks, true nulls, offsets committed twice a second."""
    converters = {
        f"{side}.converter{name}": value
        for side in ("key", "value")
        for name, value in (
            ("", _CONVERTER),
            (".schemas.enable", "true"),
            # Connect's default puts a column's default where the event says null.
            (".replace.null.with.default", "false"),
        )
    }
    return {
        "bootstrap.servers": bootstrap_servers,
        "listeners": url,
        "plugin.path": str(home / "plugins"),
        # Apicurio's converter does not name itself as a service.
        "plugin.discovery": "hybrid_warn",
        "offset.storage.file.filename": str(home / "source-offsets"),
        "offset.flush.interval.ms": "500",
        "consumer.auto.offset.reset": "earliest",
        "consumer.fetch.max.wait.ms": "100",
        **converters,
    }


def link_plugins(folder: Path, components: Iterable[str]) -> None:
    """Make each component a plugin: a folder of links to its jars."""
    for component in components:
        plugin = folder / component
        plugin.mkdir(parents=True, exist_ok=True)
        for jar in fetch_jars(component):
            link = plugin / jar.name
            if not link.exists():
                link.symlink_to(jar)


def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= limit:
            return False
        time.sleep(_STEP_S)
    return True
