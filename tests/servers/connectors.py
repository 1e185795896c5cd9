"""Connectors without an engine, and a server over them: for tests of HTTP."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any

from attrs import define, field, frozen

from connector.runtime.lifecycle import Lifecycle, TargetState, start_thread
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.runtime.monitoring.prometheus.series import MetricSource
from connector.runtime.monitoring.prometheus.sink_metrics import SinkMetrics
from connector.server.config_store import InMemoryConfigStore
from connector.server.connectors.port import Check, ConnectorOffset, Kind
from connector.server.connectors.sink_connector import parse_offset
from connector.server.http.apps import build_app, build_health_app
from connector.server.http.server import Address, HttpServer
from connector.server.rest.connect_api import ConnectApi
from connector.server.rest.plugins import load_config
from connector.server.rest.security import AccessRules
from connector.server.worker import Worker
from connector.server.worker_metrics import WorkerMetrics
from connector.settings import SourceSettings
from connector.settings.connector_class import ICEBERG_SINK_CLASS, SOURCE_CLASS
from connector.source.signals.queue_channel import SignalQueue
from tests.harness.waiting import wait_until

SINK = {
    "connector.class": ICEBERG_SINK_CLASS,
    "bootstrap.servers": "h:1",
    "topics": "t",
    "debezium.sink.iceberg.warehouse": "/w",
    "consumer.override.sasl.password": "a-secret-word",
}
SOURCE = {
    "connector.class": SOURCE_CLASS,
    "bootstrap.servers": "h:1",
    "topic.prefix": "p",
    "iceberg.catalog.warehouse": "/w",
}
"""Properties of a sink and of a source that can be read."""


@define(eq=False)
class IdleRun:
    """A run that does nothing until it is stopped."""

    fails: Exception | None = None
    stopped: Event = field(factory=Event)

    def run(self) -> None:
        """Wait, or fail at once."""
        if self.fails is not None:
            raise self.fails
        self.stopped.wait(30)

    def stop(self) -> None:
        """End the wait."""
        self.stopped.set()


def _set(event: Event) -> Event:
    event.set()
    return event


@define(eq=False)
class InMemoryConnector:
    """A `Connector` whose runs do nothing; `fails` is what the next run ends with."""

    name: str
    config: Mapping[str, str]
    lifecycle: Lifecycle
    kind: Kind = "sink"
    fails: Exception | None = None
    stored: dict[tuple[str, int], int] = field(factory=lambda: {("t", 0): 5})
    told: list[Check] = field(factory=list)
    holds: Callable[[], object] = lambda: None
    began: Event = field(factory=Event)
    committed: Event = field(factory=lambda: _set(Event()))
    sink: SinkMetrics = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sink = SinkMetrics(self.name, "server1", max_events=10, max_bytes=100)

    @property
    def metrics(self) -> Sequence[MetricSource]:
        """Those of a sink."""
        return (self.sink,)

    def start(self) -> None:
        """Live in a thread."""
        self.began.set()
        start_thread(lambda: self.lifecycle.live(self._begin, survives=True), f"test-{self.name}")

    def close(self, timeout_s: float | None) -> bool:
        """Stop, when the batch at hand is over: that is when `committed` is set."""
        self.lifecycle.stop()
        return self.committed.wait(timeout_s)

    def checks(self) -> list[Check]:
        """What the test says."""
        return self.told

    def topics(self) -> list[str]:
        """The topics of the offsets, when `holds` returns."""
        self.holds()
        return sorted({topic for topic, _ in self.stored})

    def overview(self) -> dict[str, Any]:
        """Nothing much."""
        return {
            "lag": {},
            "tables": {},
            "recent": [],
            "per_minute": [0] * 60,
            "dead_letters": {},
            "last_dead_letters": [],
            "snapshots": {},
        }

    def sample(self) -> None:
        """Nothing to look at."""

    def offsets(self) -> list[ConnectorOffset]:
        """The offsets as Connect has them, when `holds` returns."""
        self.holds()
        return [
            ConnectorOffset({"kafka_topic": topic, "kafka_partition": partition}, {"kafka_offset": offset})
            for (topic, partition), offset in sorted(self.stored.items())
        ]

    def alter_offsets(self, offsets: Sequence[ConnectorOffset] | None) -> None:
        """Keep them."""
        if offsets is None:
            self.stored.clear()
        for at, offset in map(parse_offset, offsets or ()):
            if offset is None:
                self.stored.pop(at, None)
            else:
                self.stored[at] = offset

    def _begin(self) -> IdleRun:
        return IdleRun(self.fails)


@frozen
class Answer:
    """What a request got."""

    status: int
    body: Any
    headers: Mapping[str, str]


@define
class Client:
    """A real HTTP client of one server."""

    url: str

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; an answer of any status is returned."""
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        head = {**({"Content-Type": "application/json"} if data is not None else {}), **(headers or {})}
        request = urllib.request.Request(f"{self.url}{path}", data, head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return _answer(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.read(), error.headers)


def _answer(status: int, text: bytes, headers: Any) -> Answer:
    try:
        body = json.loads(text) if text else None
    except json.JSONDecodeError:
        body = text.decode()
    return Answer(status, body, {key.lower(): value for key, value in headers.items()})


@define(eq=False)
class TestServer:
    """A worker of in-memory connectors with both of its servers."""

    __test__ = False

    worker: Worker
    store: InMemoryConfigStore
    metrics: MetricsRegistry
    rest: Client
    health: Client

    def connector(self, name: str) -> InMemoryConnector:
        """One of its connectors."""
        found = self.worker.get(name)
        assert isinstance(found, InMemoryConnector)
        return found


@define(eq=False)
class InMemorySource(InMemoryConnector):
    """One that takes signals."""

    signals: SignalQueue = field(factory=SignalQueue)


def make_connector(name: str, config: Mapping[str, str], target: TargetState) -> InMemoryConnector:
    """A connector without an engine of properties that are read as those of a real one."""
    if isinstance(load_config(config), SourceSettings):
        return InMemorySource(name, config, Lifecycle(target), "source")
    return InMemoryConnector(name, config, Lifecycle(target))


@contextmanager
def serving(
    rules: AccessRules | None = None,
    address: Address | None = None,
    store: InMemoryConfigStore | None = None,
    *,
    takes_signals: bool = True,
) -> Iterator[TestServer]:
    """Serve on free ports of loopback; no connectors yet."""
    metrics, store = MetricsRegistry(), store or InMemoryConfigStore()
    worker = Worker(make_connector, store, metrics)

    def connectors() -> list[Any]:
        return [worker.get(name) for name in worker.names]

    metrics.add(WorkerMetrics(connectors))
    api = ConnectApi(worker, "127.0.0.1:8083")
    app = build_app(api, metrics, rules or AccessRules(), takes_signals=takes_signals)
    with ExitStack() as running:
        rest = running.enter_context(HttpServer(app, address or Address("127.0.0.1", 0)))
        health = running.enter_context(HttpServer(build_health_app(worker, metrics), Address("127.0.0.1", 0)))
        running.callback(worker.close)
        yield TestServer(worker, store, metrics, Client(rest.url), Client(health.url))


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds, 20 s at most."""
    wait_until(condition, 20, step_s=0.01)


def run_one_sink(server: TestServer) -> Client:
    """Create the sink `s`, and wait until it runs; return the client of REST."""
    assert server.rest.call("POST", "/connectors", {"name": "s", "config": SINK}).status == 201
    wait_for(lambda: server.connector("s").lifecycle.state == "RUNNING")
    return server.rest


def error_of(answer: Answer) -> tuple[int, str]:
    """Status and message of a refusal, whose body repeats the status."""
    assert answer.body["error_code"] == answer.status
    return answer.status, answer.body["message"]


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed a connection; waits for it."""
    client.settimeout(20)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
