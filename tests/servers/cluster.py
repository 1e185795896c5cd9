"""empty folder -> three Kafka brokers in one cluster, each a process that can be stopped, killed and started again.

The first is the controller too: while it is away the others serve, and no leader moves.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from connector.demo.servers.kafka_broker import KafkaBroker, cluster_id
from connector.demo.servers.ports import LOOPBACK, free_ports
from tests.harness.waiting import call_until_answered, wait_until

_ALTER_CLIENT_QUOTAS = 49
_CHANGE_S = 60.0
_SHARED = {
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "unclean.leader.election.interval.ms": "500",
    "leader.imbalance.check.interval.seconds": "600",
}


class Node(KafkaBroker):
    """One broker of a cluster."""

    def __init__(self, home: Path, port: int, cluster: str, properties: Mapping[str, str], *, controls: bool) -> None:
        super().__init__(home, port=port, heap_mb=384, properties=properties)
        self._cluster, self._controls = cluster, controls

    def _format(self, config: Path) -> None:
        flag = "--standalone" if self._controls else "--no-initial-controllers"
        command = ("kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", str(config), flag)
        done = self._java(*command, heap_mb=128, short_lived=True)
        assert done.wait(self.ready_s)
        assert done.returncode == 0, self.log_end()


class Cluster:
    """Three nodes on loopback."""

    def __init__(self, home: Path) -> None:
        *ports, controller = free_ports(4)
        name = cluster_id()
        self.nodes = {
            number: Node(
                home / str(number),
                port,
                name,
                {**_SHARED, **_properties(number, port, controller)},
                controls=number == 1,
            )
            for number, port in enumerate(ports, start=1)
        }

    def __enter__(self) -> Cluster:
        for node in self.nodes.values():
            node.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in self.nodes.values():
            node.kill()

    @property
    def servers(self) -> str:
        """All of them, for clients."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def admin(self) -> AdminClient:
        """A client of all of them; hold it until its futures are done."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """Create a topic with a replica on each node; one that is being deleted is waited for."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin

        def create() -> None:
            for future in admin.create_topics([NewTopic(topic, partitions, 3, config=named)]).values():
                future.result(30)

        call_until_answered(create, (KafkaException,), _CHANGE_S, step_s=0.2)

    def create_by_replicas(self, topic: str, replicas: list[list[int]], config: Mapping[str, str]) -> None:
        """Create a topic whose partitions lie on these nodes."""
        admin = self.admin
        new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=dict(config))
        for future in admin.create_topics([new]).values():
            future.result(30)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        admin = self.admin
        for future in admin.delete_topics([topic]).values():
            future.result(30)

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic so many partitions in all, and wait until each has a leader."""
        admin = self.admin
        for future in admin.create_partitions([NewPartitions(topic, count)]).values():
            future.result(30)
        wait_until(lambda: self._count_led(topic) >= count, _CHANGE_S, f"no leaders of {topic}", step_s=0.1)

    def _count_led(self, topic: str) -> int:
        partitions = self.admin.list_topics(topic, timeout=15).topics[topic].partitions
        return sum(one.leader >= 0 for one in partitions.values())

    def leader(self, topic: str, partition: int = 0) -> int:
        """Which node leads; -1 while none does."""
        return int(self.admin.list_topics(topic, timeout=15).topics[topic].partitions[partition].leader)

    def move_leaders_home(self, topics: Mapping[str, int]) -> None:
        """Elect the preferred leaders, which others than these lead after a restart; topics by their partitions."""
        admin = self.admin
        wanted = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        for at, error in admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30).items():
            assert error is None or error.name() == "ELECTION_NOT_NEEDED", f"{at}: {error}"

    def limit_fetches(self, bytes_per_s: float | None) -> None:
        """Throttle all consumers by a quota; None takes it away."""
        entity = struct.pack(">i", 1) + _text("client-id") + struct.pack(">h", -1)  # no name: the default of all
        value = struct.pack(">d?", bytes_per_s or 0.0, bytes_per_s is None)
        body = struct.pack(">i", 1) + entity + struct.pack(">i", 1) + _text("consumer_byte_rate") + value + b"\0"
        head = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + _text("tests")
        with socket.create_connection((LOOPBACK, self.nodes[1].port), 15) as one:
            one.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            answer = one.recv(4096)
        size, _, _, count, error = struct.unpack_from(">iiiih", answer)
        assert (count, error) == (1, 0), answer[:size]


def send(
    producer: Producer,
    at: tuple[str, int],
    value: bytes | None,
    key: bytes | None = None,
    on_delivery: Callable[[object, object], None] | None = None,
) -> None:
    """Hand a record to a producer, which learns of a partition that was just added by asking anew."""
    topic, partition = at
    try:
        producer.produce(topic, value, key, partition=partition, on_delivery=on_delivery)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        producer.list_topics(topic, timeout=15)
        producer.produce(topic, value, key, partition=partition, on_delivery=on_delivery)


def _properties(number: int, port: int, controller: int) -> dict[str, str]:
    own = f"PLAINTEXT://{LOOPBACK}:{port}"
    control = f"CONTROLLER://{LOOPBACK}:{controller}"
    controls = number == 1
    return {
        "node.id": str(number),
        "process.roles": "broker,controller" if controls else "broker",
        "listeners": f"{own},{control}" if controls else own,
        "advertised.listeners": f"{own},{control}" if controls else own,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
    }


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
