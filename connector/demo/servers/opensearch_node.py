"""empty folder -> an OpenSearch node: one process on loopback that indexes and searches, for the demo and the tests."""

from __future__ import annotations

import os
import shutil
import urllib.error
from collections.abc import Mapping
from pathlib import Path

import orjson

from connector.demo.servers.ports import DIRECT, LOOPBACK, keep_ports
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.runtime.jvm.collector import collector_options
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java_home

JAVA = 21
"""OpenSearch 3 needs it."""

_LOG_CONFIG = Path(__file__).with_name("log4j2-search.properties")
_TRANSPORT = "transport-netty4"
_DESCRIPTOR = """\
name={name}
description=HTTP and transport over Netty
version={version}
opensearch.version={version}
java.version={java}
classname=org.opensearch.transport.Netty4ModulePlugin
"""
# One node, no other to look for; a test disk is never too full, and new indexes need no vote of a quorum.
_DEFAULTS = {
    "discovery.type": "single-node",
    "network.host": LOOPBACK,
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "node.max_local_storage_nodes": "1",
}


class OpenSearchNode(Server):
    """A node over one home folder; started again on the same home it has the same indexes and port.

    It answers after about 15 s. Output goes to `search.log` in the home.
    """

    name = "search"
    ready_s = 360.0
    starts = 3

    def __init__(
        self, home: Path, heap_mb: int = 512, settings: Mapping[str, str] | None = None, *, short_lived: bool = False
    ) -> None:
        """Describe a node; nothing runs yet. `settings` win over those of `opensearch.yml` here.

        One that is short-lived takes less to start, and more for each document.
        """
        super().__init__(home)
        self._short_lived = short_lived
        self.heap_mb = heap_mb
        self.settings = dict(settings or {})

    @property
    def url(self) -> str:
        """`connection.url` for clients. FatalError before the first start."""
        return f"http://{LOOPBACK}:{self.port}"

    def _launch(self) -> ChildProcess:
        self._port, transport = keep_ports(self.home / "ports")
        for folder in ("config", "data", "tmp"):
            (self.home / folder).mkdir(exist_ok=True)
        class_path = self._install()
        own = {
            **_DEFAULTS,
            "http.port": str(self._port),
            "transport.port": str(transport),
            "path.data": str(self.home / "data"),
            "path.logs": str(self.home),
            **self.settings,
        }
        lines = "".join(f"{key}: {orjson.dumps(value).decode()}\n" for key, value in own.items())
        (self.home / "config" / "opensearch.yml").write_text(lines, encoding="utf-8")
        shutil.copyfile(_LOG_CONFIG, self.home / "config" / "log4j2.properties")
        return ChildProcess(self._command(class_path), self.log, {"OPENSEARCH_PATH_CONF": str(self.home / "config")})

    def _install(self) -> list[Path]:
        """Lay the HTTP module out as the server expects it; give the other jars."""
        jars = fetch_jars("search")
        own = [jar for jar in jars if jar.name.startswith(("netty-", _TRANSPORT))]
        version = next(jar.parent.name for jar in own if jar.name.startswith(_TRANSPORT))
        module = self.home / "modules" / _TRANSPORT
        shutil.rmtree(module, ignore_errors=True)
        module.mkdir(parents=True)
        for jar in own:
            (module / jar.name).symlink_to(jar)
        text = _DESCRIPTOR.format(name=_TRANSPORT, version=version, java=JAVA)
        (module / "plugin-descriptor.properties").write_text(text, encoding="utf-8")
        (self.home / "plugins").mkdir(exist_ok=True)
        return [jar for jar in jars if jar not in own]

    def _command(self, class_path: list[Path]) -> list[str]:
        java = find_java_home(JAVA, need_module=None, maximum=None) / "bin" / "java"
        defined = {
            "opensearch.path.home": self.home,
            "opensearch.path.conf": self.home / "config",
            "java.security.manager": "allow",
            "java.io.tmpdir": self.home / "tmp",
            "java.awt.headless": "true",
            "log4j2.disable.jmx": "true",
            # Without native calls it cannot see that it runs as root, which it would refuse.
            "jna.nosys": "true",
            "jna.noclasspath": "true",
        }
        quick = ("-XX:TieredStopAtLevel=1",) if self._short_lived else ()
        return [
            *(str(java), *collector_options("-XX:+UseSerialGC")),
            *(f"-Xms{self.heap_mb // 2}m", f"-Xmx{self.heap_mb}m", "-Xshare:auto"),
            *quick,
            *(f"-D{name}={value}" for name, value in defined.items()),
            *("-cp", os.pathsep.join(map(str, class_path)), "org.opensearch.bootstrap.OpenSearch"),
        ]

    def _is_worth_another_start(self) -> bool:
        return "BindException" in self.log_end(60)

    def _is_answering(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/_cluster/health", timeout=5) as answer:
                return orjson.loads(answer.read())["status"] in ("green", "yellow")
        except (urllib.error.URLError, OSError, ValueError):
            return False
