"""empty folder -> a Kafka broker: one KRaft process (broker and controller) on loopback, for the demo and the tests."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from connector.demo.servers.ports import LOOPBACK, is_answering, keep_ports
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.errors import FatalError
from connector.runtime.jvm.collector import collector_options
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java_home

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
    while (name := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return name


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


def java_options(heap_mb: int, *, short_lived: bool = False) -> tuple[str, ...]:
    """Return the JVM's options: heap, a collector that costs least on few cores, the log configuration.

    A JVM that is short-lived compiles with the quicker of its compilers alone.
    """
    return (
        f"-Xmx{heap_mb}m",
        *collector_options("-XX:+UseSerialGC"),
        *(("-XX:TieredStopAtLevel=1",) if short_lived else ()),
        "-Xshare:auto",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
    )


class KafkaBroker(Server):
    """A broker over one home folder; started again on the same home it has the same cluster id, data and port.

    It answers after about 4 s, 2 s more on a new home. Output goes to `broker.log` in the home.
    """

    name = "broker"
    starts = 3

    def __init__(
        self,
        home: Path,
        port: int | None = None,
        heap_mb: int = 768,
        properties: Mapping[str, str] | None = None,
        *,
        short_lived: bool = False,
    ) -> None:
        """Describe a broker; nothing runs yet. `port` None: the port of the last time if free, else any.

        One that is short-lived takes less to start, and more for each record.
        """
        super().__init__(home)
        self.heap_mb = heap_mb
        self.properties = dict(properties or {})
        self._wanted_port, self._short_lived = port, short_lived

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. FatalError before the first start."""
        return f"{LOOPBACK}:{self.port}"

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; dots in configuration names are written as underscores. KafkaException when it exists."""
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin = self._admin()  # held: the futures die with it
        for future in admin.create_topics([topic]).values():
            future.result(self.ready_s)

    def _launch(self) -> ChildProcess:
        self._port, controller_port = keep_ports(self.home / "ports", self._wanted_port)
        config = self.home / "server.properties"
        values = server_properties(self.home, self._port, controller_port, self.properties)
        config.write_text(javaproperties.dumps(values, timestamp=False), encoding="ascii")
        if not (self.home / "data" / "meta.properties").exists():
            self._format(config)
        return self._java("kafka.Kafka", str(config), heap_mb=self.heap_mb, short_lived=self._short_lived)

    def _is_worth_another_start(self) -> bool:
        # Somebody else may have taken a port between choosing and listening.
        return self._wanted_port is None and "BindException" in self.log_end()

    def _format(self, config: Path) -> None:
        cluster = cluster_id()
        command = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config), "--standalone")
        done = self._java(*command, heap_mb=128, short_lived=True)
        if not done.wait(self.ready_s) or done.returncode != 0:
            done.kill()
            raise FatalError(
                f"the embedded broker's folder could not be formatted; the end of {self.log}:\n{self.log_end()}"
            )

    def _java(self, *command: str, heap_mb: int, short_lived: bool) -> ChildProcess:
        java = find_java_home(need_module=None) / "bin" / "java"
        class_path = os.pathsep.join(map(str, fetch_jars("broker")))
        return ChildProcess(
            [str(java), *java_options(heap_mb, short_lived=short_lived), "-cp", class_path, *command], self.log
        )

    def _is_answering(self) -> bool:
        if not is_answering(self.port):
            return False
        try:
            return bool(self._admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
