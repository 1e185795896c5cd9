"""empty folder -> a Kafka broker: one KRaft process (broker and controller) on loopback, for the demo and the tests."""

from __future__ import annotations

import base64
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from connector.embedded.ports import LOOPBACK, answers, free_ports, is_free
from connector.embedded.process import Child
from connector.errors import FatalError
from connector.runtime.jars import jars
from connector.runtime.java import java_home

_READY_S = 60.0
_STOP_S = 20.0
_STARTS = 3
_LOG_CONFIG = Path(__file__).with_name("log4j2-broker.properties")

# One node only, old record timestamps (retention must not delete a replayed topic), little memory, no waiting.
_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A crashed broker is let in again only when its old session has run out (9 s by default).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "auto.create.topics.enable": "false",
}


def cluster_id() -> str:
    """Return a new cluster id as Kafka makes them: 16 random bytes in base64 that do not look like an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def server_properties(
    home: Path, port: int, controller_port: int, overrides: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the broker's properties for a data folder and two loopback ports; `overrides` win."""
    listeners = f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}"
    return {
        **_DEFAULTS,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
        "log.dirs": (home / "data").as_posix(),
        **(overrides or {}),
    }


def java_options(heap_mb: int) -> tuple[str, ...]:
    """Return the JVM's options: heap, a collector that costs least on few cores, the log configuration."""
    return (
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
    )


class Broker:
    """A broker over one home folder; started again on the same home it has the same cluster id, data and port.

    The process ends with this one. Output goes to `broker.log` in the home.
    """

    def __init__(
        self,
        home: Path,
        port: int | None = None,
        heap_mb: int = 768,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a broker; nothing runs yet. `port` None: the port of the last time if free, else any."""
        self.home = Path(home).absolute()
        self.heap_mb = heap_mb
        self.properties = dict(properties or {})
        self._wanted_port = port
        self._port: int | None = None
        self._child: Child | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. FatalError before the first start."""
        if self._port is None:
            raise FatalError("the embedded broker was not started yet: call start()")
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    @property
    def log(self) -> Path:
        """File that the broker writes its output to."""
        return self.home / "broker.log"

    def start(self) -> Self:
        """Start and wait until it answers (about 4 s; 2 s more on a new home). FatalError with the log's end if not."""
        if self.pid is not None:
            return self
        self.home.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _STARTS + 1):
            self._launch()
            if self._wait_ready():
                return self
            self.kill()
            # Somebody else may have taken a port between choosing and listening.
            if self._wanted_port is not None or attempt == _STARTS or "BindException" not in self._log_end():
                break
        raise FatalError(f"the embedded broker did not start; the end of {self.log}:\n{self._log_end()}")

    def stop(self) -> None:
        """Stop it cleanly (SIGTERM, SIGKILL after 20 s)."""
        if self._child is not None:
            self._child.stop(_STOP_S)
            self._child = None

    def kill(self) -> None:
        """Kill it as a crash would (SIGKILL)."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; dots in configuration names are written as underscores. KafkaException when it exists."""
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin = self._admin()  # held: the futures die with it
        for future in admin.create_topics([topic]).values():
            future.result(_READY_S)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _launch(self) -> None:
        self._port, controller_port = self._choose_ports()
        config = self.home / "server.properties"
        values = server_properties(self.home, self._port, controller_port, self.properties)
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        (self.home / "ports").write_text(f"{self._port} {controller_port}\n", encoding="utf-8")
        if not (self.home / "data" / "meta.properties").exists():
            self._format(config)
        self._child = self._java("kafka.Kafka", str(config), heap_mb=self.heap_mb)

    def _choose_ports(self) -> tuple[int, int]:
        file = self.home / "ports"
        old = tuple(map(int, file.read_text(encoding="utf-8").split())) if file.exists() else ()
        fresh = iter(free_ports(2))
        port = self._wanted_port or next((port for port in old[:1] if is_free(port)), 0) or next(fresh)
        return port, next((port for port in old[1:] if is_free(port)), 0) or next(fresh)

    def _format(self, config: Path) -> None:
        cluster = cluster_id()
        done = self._java(
            "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config), "--standalone", heap_mb=128
        )
        if not done.wait(_READY_S) or done.returncode != 0:
            done.kill()
            raise FatalError(
                f"the embedded broker's folder could not be formatted; the end of {self.log}:\n{self._log_end()}"
            )

    def _java(self, *command: str, heap_mb: int) -> Child:
        java = java_home(need_module=None) / "bin" / "java"
        class_path = os.pathsep.join(map(str, jars("broker")))
        return Child([str(java), *java_options(heap_mb), "-cp", class_path, *command], self.log)

    def _wait_ready(self) -> bool:
        assert self._child is not None
        assert self._port is not None
        limit = time.monotonic() + _READY_S
        while time.monotonic() < limit and self._child.returncode is None:
            if answers(self._port) and self._has_metadata():
                return True
            self._child.wait(0.05)
        return False

    def _has_metadata(self) -> bool:
        try:
            return bool(self._admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _log_end(self, lines: int = 15) -> str:
        if not self.log.exists():
            return "(nothing was written)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
