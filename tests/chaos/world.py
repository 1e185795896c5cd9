"""An empty folder -> the servers: PostgreSQL, brokers, a Connect worker, OpenSearch, each behind a relay.

    Debezium -> relay -> PostgreSQL <- relay <- catalogs of all connectors
    everybody -> relay -> broker;  the search sink -> relay -> OpenSearch
All of them end with this process, however it ends.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from tests.chaos.connectors import CATALOG, LAKE, Addresses
from tests.chaos.disk import SmallDisk
from tests.chaos.tables import MARKER, ONLY_IN_POSTGRES, TABLES, mark
from tests.chaos.worker import CONNECTOR, TRANSACTIONS, Worker, debezium, topic
from tests.harness.waiting import wait_until
from tests.interop.postgres import Postgres
from tests.servers.cluster import Cluster
from tests.servers.relay import Relay

PARTITIONS = 2
_CALL_S, _READY_S, _STEP_S = 30.0, 60.0, 0.5
_POSTGRES = {"wal_level": "logical", "synchronous_commit": "on", "wal_keep_size": "64MB", "max_connections": "200"}
_ONE_BROKER = {"log.cleaner.enable": "false"}


class Killable(Protocol):
    """A server that can be killed and started again on the same data and port."""

    _child: ChildProcess | None
    """The process of now, which `kill` forgets."""

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> object:
        """Start, and wait until it answers."""


class World:
    """All servers, and relays to them."""

    def __init__(self, home: Path, brokers: int = 1) -> None:
        """Describe it; nothing runs yet."""
        self.home = home
        self.disk = SmallDisk(home / "warehouse")
        self.postgres = _Database()
        ports = free_ports(2 * brokers + 5)
        to_database, to_catalog, to_search, self._search_port = ports[-5:-1]
        self._database_relay = Relay(self.postgres.port, port=to_database)
        self._catalog_relay = Relay(self.postgres.port, port=to_catalog)
        self._brokers, self._broker_relays = _describe_brokers(home, brokers, ports)
        self.servers = ",".join(f"{LOOPBACK}:{relay.port}" for relay in self._broker_relays)
        self.worker = Worker(home / "connect", self.servers)
        self.search = OpenSearchNode(home / "search", heap_mb=512, short_lived=True)
        self.search.home.mkdir(parents=True)
        (self.search.home / "ports").write_text(f"{self._search_port} {ports[-1]}", encoding="utf-8")
        self._search_relay = Relay(self._search_port, port=to_search)
        self.is_searched = True
        """Whether a connector of now writes documents: else nobody notices what is done to OpenSearch."""
        self._stack = ExitStack()

    @property
    def addresses(self) -> Addresses:
        """What connectors are told."""
        return Addresses(self.servers, self._catalog_relay.port, f"http://{LOOPBACK}:{self._search_relay.port}")

    @property
    def relays(self) -> dict[str, list[Relay]]:
        """Those that something passes, by what is behind them."""
        searching = {"opensearch": [self._search_relay]} if self.is_searched else {}
        return {
            "broker": self._broker_relays,
            "catalog": [self._catalog_relay],
            "database": [self._database_relay],
            **searching,
        }

    @property
    def killable(self) -> dict[str, Killable]:
        """The servers that are at work, by name."""
        brokers = {f"broker {number}": one for number, one in enumerate(self._brokers, start=1)}
        searching: dict[str, Killable] = {"opensearch": self.search} if self.is_searched else {}
        return {"postgres": self.postgres, "connect": self.worker, **searching, **brokers}

    def __enter__(self) -> Self:
        """Start all of it, with topics, tables and Debezium's connector (a minute)."""
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.postgres.home, ignore_errors=True)
            for server in self.killable.values():
                stack.callback(server.kill)
            for relay in self._all_relays():
                stack.enter_context(relay)
            stack.enter_context(self.disk)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill all of it."""
        self._stack.close()

    @property
    def is_cluster(self) -> bool:
        """Whether there are several brokers, of which one leads a partition."""
        return len(self._brokers) > 1

    def elect(self) -> None:
        """Have each partition be led by the first of its brokers, as far as these are there."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        with suppress(KafkaException, TimeoutError):
            admin.elect_leaders(ElectionType.PREFERRED).result(_CALL_S)

    def heal(self) -> None:
        """Every connection is there, and as quick as it can be."""
        for relay in self._all_relays():
            relay.come_back()
            relay.lose_answer(None)
            relay.delay_s = 0.0
        self.disk.free()

    def lost_answers(self) -> int:
        """How many answers of the catalog were lost after its commit."""
        return self._catalog_relay.lost_answers

    def _all_relays(self) -> list[Relay]:
        return [*self._broker_relays, self._catalog_relay, self._database_relay, self._search_relay]

    def _start(self) -> None:
        self.postgres.start()
        for statement in (*(table.create for table in TABLES), *ONLY_IN_POSTGRES, f"CREATE DATABASE {CATALOG}"):
            self.postgres.run(statement)
        for broker in self._brokers:
            broker.start()
        self._create_topics()
        self.search.start()
        self.worker.start()
        self.worker.create_when_ready(CONNECTOR, debezium(self._database_relay.port))
        self._leave_snapshot()

    def _leave_snapshot(self) -> None:
        """Have Debezium's snapshot of the empty tables be over for good.

        One that is killed begins it anew, and what was deleted between the two reads no event ever tells.
        """
        numbers = count()

        def has_left() -> bool:
            self.postgres.run(mark(next(numbers)))
            return self.worker.has_left_snapshot()

        wait_until(has_left, _READY_S, "Debezium's snapshot was not over", step_s=_STEP_S)

    def _create_topics(self) -> None:
        names = [topic(table.name) for table in TABLES]
        counts = dict.fromkeys((*names, *(f"{LAKE}.default.{one.replace('.', '_')}" for one in names)), PARTITIONS)
        counts |= {topic(MARKER): 1, TRANSACTIONS: 1}
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        limit = time.monotonic() + _READY_S
        left = [NewTopic(name, count, len(self._brokers)) for name, count in counts.items()]
        while left:
            made = admin.create_topics(left)
            left = [one for one in left if not _is_made(made[one.topic], is_last=time.monotonic() > limit)]
            time.sleep(0.2 if left else 0)


def _is_made(future: Future[None], *, is_last: bool) -> bool:
    """Wait for a topic; a broker that answers may not count as one to put replicas on yet."""
    try:
        future.result(_CALL_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True
        if is_last:
            raise
        return False
    return True


class _Database(Postgres):
    """PostgreSQL that is started again where it was killed."""

    def __init__(self) -> None:
        super().__init__({**_POSTGRES})
        self._made = False

    @property
    def home(self) -> Path:
        """Its folder."""
        return self._home

    def start(self) -> Self:
        if self.pid is None:
            if self._made:
                self.start_again()
            else:
                super().start()
                self._made = True
        return self


def _describe_brokers(home: Path, count: int, ports: tuple[int, ...]) -> tuple[list[KafkaBroker], list[Relay]]:
    """Brokers that tell their clients, and each other, the addresses of their relays."""
    if count == 1:
        told = f"PLAINTEXT://{LOOPBACK}:{ports[1]}"
        own = {**_ONE_BROKER, "advertised.listeners": told}
        return [KafkaBroker(home / "broker", ports[0], 512, own, short_lived=True)], [Relay(ports[0], port=ports[1])]
    nodes = list(Cluster(home / "brokers").nodes.values())
    relays = []
    for node, port in zip(nodes, ports, strict=False):
        listening = node.properties["advertised.listeners"]
        own_port = node.properties["listeners"].split(",")[0].rsplit(":", 1)[1]
        node.properties["advertised.listeners"] = listening.replace(f":{own_port}", f":{port}", 1)
        relays.append(Relay(int(own_port), port=port))
    return list(nodes), relays


def make_home(told: Path | None) -> Path:
    """The folder of a run, which stays where something was wrong; others than its owner may go through it."""
    home = told or Path(tempfile.mkdtemp(prefix="icebridge-chaos-"))
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    return home
