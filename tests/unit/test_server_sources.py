"""Parts of the served connectors that need no engine: probes, recent batches, offsets of sources and sinks, stores."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import attrs
import pytest
import structlog

from connector.errors import ConfigError, RetriableError
from connector.runtime.lifecycle import Lifecycle, start_call
from connector.runtime.monitoring.listeners import BatchReport, StepReport
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.server import worker as worker_module
from connector.server.config_store import InMemoryConfigStore, StoredConnector
from connector.server.connectors.port import ConnectorOffset
from connector.server.connectors.sink_connector import SinkConnector, check_offsets, parse_offset
from connector.server.connectors.source_connector import SourceConnector
from connector.server.errors import RestError
from connector.server.http.server import Address, HttpServer, open_server
from connector.server.probe import Probe, Sampler
from connector.server.process import serve_worker
from connector.server.recent import RecentActivity
from connector.server.rest.documents import mask_config
from connector.server.rest.plugins import load_config
from connector.server.rest.security import AccessRules
from connector.server.serving import ConnectorDefaults
from connector.server.worker import Worker
from connector.settings import load
from connector.settings.connector_class import ICEBERG_SINK_CLASS, SOURCE_CLASS
from connector.settings.server import ServerSettings
from connector.settings.source.settings import load_source
from connector.sink.microbatch.spark_source import BatchFunction
from connector.sink.microbatch.start_offsets import ClusterState
from tests.runs.metrics import scrape
from tests.servers.connectors import SINK, SOURCE, Client, InMemoryConnector, wait_for


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing."""


def test_a_probe_tells_what_the_last_look_found() -> None:
    """Down before the first look; a reason in our own words, and of other errors their type alone."""
    probe = Probe("broker")
    assert not probe.check.is_up
    assert probe.look(lambda: 5) == 5
    assert probe.check.is_up

    def fail(error: Exception) -> None:
        raise error

    assert probe.look(lambda: fail(RetriableError("no  answer\nfrom h:1"))) is None
    assert probe.check.data["reason"] == "no answer from h:1"
    probe.look(lambda: fail(ValueError("row content")))
    assert probe.check.data["reason"] == "ValueError"


def test_a_look_that_hangs_holds_up_no_other() -> None:
    """And is not begun again meanwhile."""
    held, seen = threading.Event(), threading.Semaphore(0)
    looks: list[str] = []

    class Looked(InMemoryConnector):
        def sample(self) -> None:
            looks.append(self.name)
            if self.name == "hangs":
                held.wait(30)
            seen.release()

    connectors = [Looked(name, {}, Lifecycle()) for name in ("hangs", "answers")]
    sampler = Sampler(lambda: connectors, 0.01)
    sampler.start()
    for _ in range(5):
        assert seen.acquire(timeout=20)
    sampler.close()
    held.set()
    assert looks.count("hangs") == 1


def test_a_look_that_hangs_holds_up_no_successor() -> None:
    """A connector that got other properties is looked at while the look at what it was before still hangs."""
    begun, held, seen = threading.Event(), threading.Event(), threading.Event()

    class Hangs(InMemoryConnector):
        def sample(self) -> None:
            begun.set()
            held.wait(30)

    class Answers(InMemoryConnector):
        def sample(self) -> None:
            seen.set()

    connectors: list[Any] = [Hangs("s", {}, Lifecycle())]
    sampler = Sampler(lambda: list(connectors), 0.01)
    sampler.start()
    assert begun.wait(20)
    connectors[:] = [Answers("s", {}, Lifecycle())]
    is_seen = seen.wait(5)
    sampler.close()
    held.set()
    assert is_seen


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "PAUSED"])
@pytest.mark.parametrize("kind", ["sink", "source"])
def test_a_connector_that_does_not_run_is_not_connected(kind: str, state: Any) -> None:
    """The broker answers whoever looks at it for a connector that failed, was paused or stopped."""
    connector: Any
    if kind == "sink":
        connector = SinkConnector(load([], {**SINK, "name": "s"}), SINK, Lifecycle())
        connector._read_ends = lambda: {("t", 0): 5}
    else:
        connector = SourceConnector(load_source([], {**SOURCE, "name": "s"}), SOURCE, Lifecycle())
        connector._ask_broker = lambda: "cluster"
    connector.lifecycle.state = state
    connector.sample()
    assert set(scrape(*connector.metrics)["debezium_metrics_Connected"].values()) == {float(state == "RUNNING")}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "s"),
        ({"debezium.source.topic.prefix": "${env:PREFIX}"}, "shop"),
        ({"database.server.name": "shop"}, "shop"),
    ],
)
def test_metrics_of_a_sink_are_named_by_the_topic_prefix(given: dict[str, str], name: str) -> None:
    """Debezium's dashboards group by it: as it is looked up, by whichever of its keys it is given; else the name."""
    config = {**SINK, "name": "s", **given}
    connector = SinkConnector(load([], config, {"PREFIX": "shop"}), config, Lifecycle())
    (labels,) = scrape(*connector.metrics)["debezium_metrics_Connected"]
    assert dict(labels)["name"] == name


@pytest.mark.parametrize("kind", ["sink", "source"])
def test_the_log_of_a_process_with_connectors_says_of_which_a_line_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line of a connector's thread, of those that it starts and of its batches; each batch or step has one."""
    bound: Any = structlog.contextvars.get_contextvars
    seen, connector = list[Any](), cast("Any", None)

    def live(_open: Any, _settings: Any, monitor: Any, *, survives: bool) -> None:
        assert survives
        seen.extend([bound(), start_call(bound, "beside").result(20)])
        batch = BatchFunction(lambda _: seen.append(bound()), Mock())
        threading.Thread(target=batch, args=(None, 1)).start()  # as Java calls it
        if kind == "sink":
            monitor.listeners[0].on_batch(BatchReport(1, 0.5, {}, metrics=TaskMetrics(events=1)))
        else:
            monitor.listeners[0].on_step(StepReport("a.b", "snapshot published", 1, 0.5))

    monkeypatch.setattr(f"connector.server.connectors.{kind}_connector.live_{kind}", live)
    if kind == "sink":
        connector = SinkConnector(load([], {**SINK, "name": "s"}), SINK, Lifecycle(), Mock())
    else:
        connector = SourceConnector(load_source([], {**SOURCE, "name": "s"}), SOURCE, Lifecycle(), Mock())
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        connector.start()
        connector.close(20)
        wait_for(lambda: len(seen) == 3)
    assert seen == [{"connector": "s"}] * 3
    event = "batch committed" if kind == "sink" else "snapshot published"
    assert [(line["event"], line["connector"]) for line in lines] == [(event, "s")]


def test_listeners_tell_the_same_of_loggers() -> None:
    """A level that was set at one listener is shown by the others, with the time of the change."""
    metrics = MetricsRegistry()
    worker = Worker(None, InMemoryConfigStore(), metrics)
    settings = ServerSettings(health_port=-1, listeners=("http://127.0.0.1:0", "http://127.0.0.1:0"))
    with structlog.testing.capture_logs() as lines, serve_worker(settings, worker, metrics):
        one, other = (Client(line["url"]) for line in lines if line["event"] == "listening")
        assert one.call("PUT", "/admin/loggers/pyiceberg", {"level": "error"}).status == 200
        assert other.call("GET", "/admin/loggers/pyiceberg").body["last_modified"] is not None


def test_recent_batches_and_the_last_hour() -> None:
    """The newest first; a minute's events are summed, an empty batch is not shown."""
    now = [7200.0]
    recent = RecentActivity(lambda: now[0])
    reasons = (("t-0 offset 1", "TASK_PUT", "password=secret-word fails"),)
    for number, events in enumerate((3, 4, 0)):
        recent.on_batch(
            BatchReport(number, 0.5, {}, metrics=TaskMetrics(events=events), stages={"TASK_PUT": 1}, reasons=reasons)
        )
    now[0] += 60
    recent.on_step(StepReport("a.b", "part read", 1, 0.1, part=1, parts=2, operations={"r": 5}))
    assert [row["what"] for row in recent.last()] == ["part read 1/2", "batch 1", "batch 0"]
    assert recent.per_minute()[-2:] == [7, 5]
    assert len(recent.per_minute()) == 60
    assert recent.dead_letters() == {"TASK_PUT": 3}
    told = {"at": 7200.0, "record": "t-0 offset 1", "stage": "TASK_PUT", "reason": "password=*** fails"}
    assert recent.last_dead_letters() == [told] * 3


def test_offsets_of_sinks_are_read_as_connect_does() -> None:
    """Numbers may be texts; null forgets."""
    partition = {"kafka_topic": "t", "kafka_partition": "1"}
    assert parse_offset(ConnectorOffset(partition, {"kafka_offset": "7"})) == (("t", 1), 7)
    assert parse_offset(ConnectorOffset(partition, None)) == (("t", 1), None)
    with pytest.raises(RestError, match="Failed to parse the following Kafka partition value"):
        parse_offset(ConnectorOffset({**partition, "kafka_partition": "x"}, None))
    for number in ("1_0", " 1", True, 1.5, "9" * 5000):
        with pytest.raises(RestError, match="Failed to parse the following Kafka offset value"):
            parse_offset(ConnectorOffset(partition, {"kafka_offset": number}))
    topics: tuple[Any, ...] = (None, ["t"], {})
    for topic in topics:
        with pytest.raises(RestError, match="Kafka topic names must be valid strings and may not be null"):
            parse_offset(ConnectorOffset({**partition, "kafka_topic": topic}, None))
    with pytest.raises(RestError, match="Kafka partitions must be valid numbers and may not be null"):
        parse_offset(ConnectorOffset({**partition, "kafka_partition": None}, None))


def test_offsets_that_the_topics_do_not_have() -> None:
    """They are named, with those that there are."""
    at, other = ("t", 0), ("t", 1)
    seen = ClusterState("c", {}, {at: 5, other: 0}, {at: 9, other: 0})
    for good in ({}, {at: None}, {at: 5, other: 0}, {at: 9}):
        check_offsets(good, seen)
    check_offsets({at: 12}, attrs.evolve(seen, log_ends={at: 12, other: 0}))  # behind an open transaction
    with pytest.raises(RestError, match=r"t-0 \(5 to 12\)$"):
        check_offsets({at: 13}, attrs.evolve(seen, log_ends={at: 12, other: 0}))
    with pytest.raises(RestError, match=r"not read by this connector: t-2, u-0$"):
        check_offsets({("u", 0): 1, ("t", 2): None, at: 7}, seen)
    with pytest.raises(RestError, match=r"hold other offsets: t-0 \(5 to 9\), t-1 \(0 to 0\)$"):
        check_offsets({other: 1, at: 4}, seen)


def test_secrets_are_masked_and_references_are_not() -> None:
    """Where a secret is kept may be known, and logins within URLs may not."""
    config = {"a.password": "x", "b.password": "${env:P}", "uri": "jdbc:x://me:word@h/db", "topics": "t"}
    assert mask_config(config) == {
        "a.password": "***",
        "b.password": "${env:P}",
        "uri": "jdbc:x://***@h/db",
        "topics": "t",
    }


def test_a_port_that_is_taken() -> None:
    """A default is given up, one that was asked for is an error."""
    with HttpServer(_app, Address("127.0.0.1", 0)) as server:
        taken = Address("127.0.0.1", server.port)
        assert open_server(_app, taken, is_given=False) is None
        with pytest.raises(ConfigError, match="cannot be opened"):
            open_server(_app, taken, is_given=True)


@pytest.mark.parametrize("takes_connectors", [True, False])
def test_a_worker_does_not_run_without_its_listener(monkeypatch: pytest.MonkeyPatch, takes_connectors: bool) -> None:
    """Where another process has the default port nobody could create a connector; one of a file runs without."""
    monkeypatch.setattr(ServerSettings, "are_listeners_given", False)
    make = (lambda name, config, _: InMemoryConnector(name, config, Lifecycle())) if takes_connectors else None
    metrics = MetricsRegistry()
    worker = Worker(make, InMemoryConfigStore(), metrics)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ServerSettings(-1, listeners=(f"http://127.0.0.1:{taken.getsockname()[1]}",))
        refused = pytest.raises(ConfigError, match="cannot be opened") if takes_connectors else nullcontext()
        with refused, serve_worker(settings, worker, metrics):
            pass


def test_listeners() -> None:
    """They are written as Kafka Connect's; without a host all addresses are meant."""
    assert Address.of_listener("http://:8083", None, None) == Address("0.0.0.0", 8083)
    assert Address.of_listener("https://[::1]:1", "k", "p") == Address("::1", 1, "k", "p")
    assert Address.of_listener("HTTP://localhost:1", "k", None).is_loopback


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("listeners=ftp://h:1", "is not a list of listeners"),
        ("listeners=http://h", "is not a list of listeners"),
        ("listeners=https://h:1", "set listeners.https.ssl.keystore.location"),
        ("rest.basic.auth.user.info=me", "is not a login; write user:password"),
        ("access.control.allow.origin=good.example", "is not a list of origins"),
        ("quarkus.http.port=70000", "is outside -1 to 65535"),
    ],
)
def test_options_that_cannot_be_used(tmp_path: Path, line: str, words: str) -> None:
    """Each fault says what to write, and never the login."""
    file = tmp_path / "s.properties"
    file.write_text(f"bootstrap.servers=h:1\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\n{line}\n")
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")) as error:
        load([file], environ={})
    assert "'me'" not in str(error.value)


def test_no_listener() -> None:
    """An empty list is none."""
    settings = load(
        [], {"bootstrap.servers": "h:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w", "listeners": ""}
    )
    assert settings.server.listeners == ()


def test_what_a_worker_says_for_all() -> None:
    """Brokers and catalog, not its own ports; a connector's own keys win."""
    defaults = ConnectorDefaults({"bootstrap.servers": "h:1", "listeners": "http://:1", "name": "w", "topics": "x"})
    assert defaults.complete({"name": "s", "topics": "t"}) == {"bootstrap.servers": "h:1", "name": "s", "topics": "t"}
    sinks = ConnectorDefaults({"debezium.sink.type": "iceberg"})
    assert sinks.complete({"name": "s"}) == {"debezium.sink.type": "iceberg", "name": "s"}
    assert "debezium.sink.type" not in sinks.complete({"name": "s", "connector.class": SOURCE_CLASS})


@pytest.mark.parametrize("own", ["iceberg.catalog.", "debezium.sink.iceberg."])
@pytest.mark.parametrize("file", ["iceberg.catalog.", "debezium.sink.iceberg."])
@pytest.mark.parametrize("kind", [{"connector.class": ICEBERG_SINK_CLASS, "topics": "t"}, SOURCE])
def test_a_connectors_own_keys_win_under_whichever_name(kind: dict[str, str], file: str, own: str) -> None:
    """The catalog that a connector names by another program's key is its own, whatever the worker's file says."""
    of_file = {"bootstrap.servers": "h:1", f"{file}uri": "http://file", f"{file}type": "rest"}
    settings = load_config(ConnectorDefaults(of_file).complete({**kind, f"{own}uri": "http://own", "name": "s"}))
    assert settings.catalog.properties["uri"] == "http://own"
    assert settings.catalog.properties["type"] == "rest"


def test_a_connectors_own_options_win_by_every_name() -> None:
    """Options that have two names, and those of Flink and of Iceberg's own sink."""
    of_file = {
        "group.id": "file",
        "iceberg.maintenance.enabled": "true",
        "debezium.sink.iceberg.upsert": "true",
        "debezium.sink.batch.interval-ms": "7",
    }
    own = {
        "connector.class": ICEBERG_SINK_CLASS,
        "consumer.override.group.id": "own",
        "flink-maintenance.enabled": "false",
        "iceberg.tables.upsert-mode-enabled": "false",
        "iceberg.control.commit.interval-ms": "5000",
    }
    assert ConnectorDefaults(of_file).complete(own) == own


@pytest.mark.parametrize("name", [SOURCE_CLASS, "IcebergSource"])
def test_a_source_has_no_options_of_the_workers_sinks(name: str) -> None:
    """What a worker's file says of sinks is left out, and what both kinds know is not, under whichever name."""
    both = {
        "bootstrap.servers": "h:1",
        "debezium.sink.iceberg.warehouse": "/w",
        "errors.retry.timeout": "5",
        "spark.a": "b",
        "debezium.sink.iceberg.s3.endpoint": "http://s",
    }
    of_sinks = {"iceberg.maintenance.enabled": "false", "topics": "t", "write.format": "orc", "upsert": "true"}
    defaults = ConnectorDefaults({**both, **of_sinks, "debezium.sink.iceberg.upsert": "false"})
    found = defaults.complete({"name": "s", "connector.class": name, "topic.prefix": "p"})
    assert both.items() <= found.items()
    assert not of_sinks.keys() & found.keys()
    load_source([], found, {})


def test_a_store_in_memory() -> None:
    """What is put is there until it is removed."""
    store = InMemoryConfigStore()
    store.put("s", StoredConnector({"a": "b"}, "PAUSED"))
    assert store.load() == {"s": StoredConnector({"a": "b"}, "PAUSED")}
    store.remove("s")
    store.remove("s")
    assert store.load() == {}


def test_who_may_come_in_from_elsewhere() -> None:
    """A server on all addresses is called by any name; its pages are those that are addressed alike."""
    rules = AccessRules(is_loopback=False)
    assert rules.refusal("lake.example:8083", None) is None
    assert rules.refusal("lake.example:8083", "http://lake.example:8083") is None
    assert rules.refusal("lake.example:8083", "http://evil.example") is not None


@pytest.mark.parametrize(
    ("host", "comes_in"),
    [
        ("127.0.0.2:8083", True),
        ("LOCALHOST:8083", True),
        ("[::1]:8083", True),
        ("127.evil.example:8083", False),
        ("lake.example", False),
        ("", False),
    ],
)
def test_a_listener_of_loopback_is_called_by_names_of_this_host(host: str, *, comes_in: bool) -> None:
    """Every address of loopback is this host's, where a listener may be bound to it."""
    assert (AccessRules(is_loopback=True).refusal(host, None) is None) == comes_in


def test_connectors_that_end_late_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many have a long batch at hand, the end of the process takes no longer than that of one."""
    monkeypatch.setattr(worker_module, "STOP_TIMEOUT_S", 0.5)
    worker, late = Worker(None, InMemoryConfigStore(), MetricsRegistry()), threading.Event()
    for number in range(6):
        worker.add(InMemoryConnector(f"s{number}", {}, Lifecycle(), committed=late))
    began = time.monotonic()
    worker.close()
    took_s = time.monotonic() - began
    late.set()
    assert took_s < 2
