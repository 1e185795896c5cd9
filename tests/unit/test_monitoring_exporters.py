"""Reports of runs -> OpenLineage's events and OpenTelemetry's metrics; what cannot be sent holds nothing up."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from openlineage.client.serde import Serde
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from connector.errors import ConfigError
from connector.runtime.monitoring.exporters import Exporters, open_exporters
from connector.runtime.monitoring.lineage import (
    BackgroundEmitter,
    Dataset,
    DatasetNames,
    LineageEvent,
    LineageListener,
    catalog_namespace,
    kafka_namespace,
    open_client,
    to_run_event,
)
from connector.runtime.monitoring.listeners import BatchReport, SnapshotReport, SnapshotStage, StepReport
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.monitoring.telemetry import BatchLimits, TelemetryListener, is_enabled, open_telemetry
from connector.settings import load
from connector.settings.lineage import LineageSettings
from connector.settings.source.settings import load_source
from connector.sink.runner import name_datasets as sink_names
from connector.source.runner import name_datasets as source_names
from tests.harness.http_server import serve_http

NAMES = DatasetNames(
    "s3://lake", lambda name: Dataset("kafka://h:1", f"p.{name}"), lambda _: [("id", "long"), ("v", "string")]
)


@define
class Clock:
    """Seconds that a test sets."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


@define
class EmittedEvents:
    """Events as they are emitted."""

    events: list[LineageEvent] = field(factory=list)

    def __call__(self, event: LineageEvent) -> None:
        self.events.append(event)

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.events]


def test_a_run_is_told_with_its_datasets() -> None:
    """A source's tables are inputs, their topics outputs; each is told once, and a quiet run once in a minute."""
    emitted, clock = EmittedEvents(), Clock()
    with LineageListener(NAMES, emitted, clock) as listener:
        for _ in range(3):
            listener.on_step(StepReport("db.t", "part read", 1, 0.1))
        clock.at = 61.0
        listener.on_step(StepReport("db.t", "snapshot published", 2, 0.1))
    assert emitted.states == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert emitted.events[-1].inputs == (Dataset("s3://lake", "db.t", (("id", "long"), ("v", "string"))),)
    assert emitted.events[-1].outputs == (Dataset("kafka://h:1", "p.db.t"),)
    assert len({event.run for event in emitted.events}) == 1


def test_a_failed_run_tells_the_class_of_its_error_and_no_more() -> None:
    """A sink's topics are inputs and its tables outputs; an error's text may hold anything and is not told."""
    emitted = EmittedEvents()
    with pytest.raises(ValueError, match="secret"), LineageListener(NAMES, emitted, Clock()) as listener:
        listener.on_batch(BatchReport(1, 0.1, {("a", 0): 1, ("a", 1): 1, ("b", 0): 3}, tables={"db.t": {"rows": 1}}))
        raise ValueError("a secret")
    assert emitted.states == ["START", "RUNNING", "FAIL"]
    assert [one.name for one in emitted.events[1].inputs] == ["p.a", "p.b"]
    assert [one.name for one in emitted.events[1].outputs] == ["db.t"]
    assert emitted.events[2].error == "ValueError"


def test_an_event_is_what_the_client_sends() -> None:
    """Job facets come from the settings, schemas of tables from their columns."""
    settings = LineageSettings(description="d", tags=(("env", "test"),), owners=(("team", "owner"),))
    event = LineageEvent("FAIL", "2026-01-01T00:00:00.000+00:00", "0" * 8 + "-0000-4000-8000-" + "0" * 12, error="X")
    full = LineageEvent(event.state, event.time, event.run, (NAMES.table("db.t"),), (NAMES.describe_other("t"),), "X")
    document: dict[str, Any] = Serde.to_dict(to_run_event(full, settings, "lake", "lake.0"))
    assert (document["eventType"], document["job"]["namespace"], document["job"]["name"]) == ("FAIL", "lake", "lake.0")
    assert document["job"]["facets"]["ownership"]["owners"] == [{"name": "team", "type": "owner"}]
    assert document["run"]["facets"]["errorMessage"]["message"] == "X"
    fields = document["inputs"][0]["facets"]["schema"]["fields"]
    assert [(one["name"], one["type"]) for one in fields] == [("id", "long"), ("v", "string")]
    assert (document["outputs"][0]["namespace"], document["outputs"][0]["name"]) == ("kafka://h:1", "p.t")


def test_a_backend_that_fails_holds_nothing_up() -> None:
    """Events are sent in order by another thread; one that fails is dropped, and the next one is sent."""
    sent, main = list[str](), threading.get_ident()

    def send(event: LineageEvent) -> None:
        assert threading.get_ident() != main
        if event.state == "START":
            raise ConnectionError("a secret")
        sent.append(event.state)

    with BackgroundEmitter(send) as emitter, LineageListener(NAMES, emitter.emit, Clock()):
        pass
    assert sent == ["COMPLETE"]


def test_names_of_datasets_hold_no_secret() -> None:
    """A catalog is named by where it is, without login and parameters; topics by their first broker."""
    assert catalog_namespace("c", {"uri": "http://u:p@rest:8181/api?token=x"}) == "http://rest:8181/api"
    assert (
        catalog_namespace("c", {"uri": "jdbc:postgresql://u:p@db:5432/lake?password=x"}) == "postgresql://db:5432/lake"
    )
    assert catalog_namespace("c", {"warehouse": "s3://bucket/lake/"}) == "s3://bucket/lake"
    assert catalog_namespace("c", {"uri": "thrift://one:9083,thrift://two:9083"}) == "thrift://one:9083"
    assert catalog_namespace("c", {"uri": "http://rest:port"}) == "iceberg://c"
    assert catalog_namespace("c", {}) == "iceberg://c"
    assert kafka_namespace("SSL://one:9092,two:9092") == "kafka://one:9092"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("jdbc:oracle:thin:scott/a-secret@//db:1521/lake", "oracle://db:1521/lake"),
        ("jdbc:oracle:thin:scott/a-secret@(DESCRIPTION=(HOST=db))", "iceberg://c"),
        ("jdbc:sqlserver://db;databaseName=lake;password=a-secret", "sqlserver://db"),
        ("jdbc:sqlserver://db:1433;databaseName=lake;password=a-secret", "sqlserver://db:1433"),
        ("jdbc:mysql://address=(host=db)(password=a-secret)/lake", "iceberg://c"),
        ("jdbc:h2:file:/w/lake;PASSWORD=a-secret", "h2://file:/w/lake"),
        ("jdbc:postgresql://u:1,a-secret@db/lake", "iceberg://c"),
        ("jdbc:mysql://u:a-secret@one,u:a-secret@two/lake", "mysql://one"),
        ("jdbc:sqlite:/w/lake.db", "sqlite:///w/lake.db"),
    ],
)
def test_no_catalog_s_name_holds_its_password(uri: str, told: str) -> None:
    """Each database has a way of its own to write a login, and no backend of lineage gets to see any."""
    assert catalog_namespace("c", {"uri": uri}) == told


def test_a_faulty_configuration_of_the_client_is_told(tmp_path: Path) -> None:
    """A file that is not there is a fault of the configuration."""
    with pytest.raises(ConfigError, match=r"config\.file\.path"):
        open_client(LineageSettings(config_file=tmp_path / "none.yml"), "n", "j")


@pytest.mark.parametrize(
    ("environ", "enabled"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h:4318"}, True),
        ({"OTEL_ENABLED": "true"}, True),
        ({"OTEL_ENABLED": "false", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, False),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, False),
    ],
    ids=["nothing", "endpoint", "metrics", "enabled", "not-enabled", "disabled", "none"],
)
def test_metrics_are_pushed_when_the_environment_says_so(environ: dict[str, str], enabled: bool) -> None:
    """OpenTelemetry's own variables switch it on and off."""
    assert is_enabled(environ) == enabled
    if not enabled:
        with open_telemetry(environ, "p", "streaming") as listener:
            assert listener is None


def test_variables_of_a_cluster_end_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators set them for all pods: where OpenTelemetry is not installed, the log says so, and the run goes on."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics.export", None)
    with capture_logs() as logs, open_telemetry({"OTEL_ENABLED": "true"}, "p", "streaming") as listener:
        assert listener is None
    assert [(one["log_level"], "icebridge[telemetry]" in one["todo"]) for one in logs] == [("warning", True)]


def test_metrics_have_debeziums_names() -> None:
    """Events, dead letters and snapshots are told by Debezium's names and attributes."""
    reader, clock = InMemoryMetricReader(), Clock()
    meter, limits = MeterProvider([reader]).get_meter("test"), BatchLimits(100, 1000)
    listener = TelemetryListener(meter, "lake", "sink", clock, limits, lambda: 100.0)
    read = TaskMetrics(events=40, ignored=2, size_bytes=300)
    listener.on_batch(BatchReport(1, 0.5, {}, metrics=read, dead_letters=3, newest_ms={"db.t": 98_000}))
    listener.on_step(StepReport("db.t", "snapshot skipped", 1, 0.5))
    assert measured(reader)["debezium.snapshot.skipped"] == 1
    listener.on_step(StepReport("db.t", "part read", 1, 0.5))
    listener.on_snapshot(SnapshotReport("Initial Snapshot", "STARTED", "", ("db.t", "db.u")))
    listener.on_snapshot(SnapshotReport("Initial Snapshot", "PAUSED", "", ("db.t", "db.u")))
    clock.at = 7.0
    listener.on_snapshot(SnapshotReport("Initial Snapshot", "TABLE_SCAN_COMPLETED", "", ("db.t", "db.u"), "db.t"))
    seen = measured(reader)
    assert seen["debezium.event.count"] == 40
    assert seen["debezium.event.erroneous.count"] == 3
    assert (seen["debezium.event.filtered.count"], seen["debezium.event.skipped.count"]) == (2, 1)
    assert seen["debezium.source.lag"] == 2.0
    queue = ("limit", "remaining_capacity", "size", "size.limit")
    assert [seen[f"debezium.queue.{name}"] for name in queue] == [100, 60, 300, 1000]
    assert seen["debezium.transaction.committed.count"] == 2
    assert seen["debezium.event.time_since_last"] == 7.0
    assert (seen["debezium.snapshot.running"], seen["debezium.snapshot.paused"]) == (1, 1)
    assert (seen["debezium.snapshot.table.count"], seen["debezium.snapshot.table.remaining_count"]) == (2, 1)
    assert (seen["debezium.snapshot.duration"], seen["debezium.snapshot.paused_duration"]) == (7.0, 7.0)
    listener.on_snapshot(SnapshotReport("Initial Snapshot", "ABORTED", "", ("db.u",), "db.u"))
    clock.at = 9.0
    over = measured(reader)
    assert (over["debezium.snapshot.running"], over["debezium.snapshot.aborted"]) == (0, 1)
    assert over["debezium.snapshot.duration"] == 7.0


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """The URL of a server that takes everything, and the paths that it was asked for."""
    paths = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

    with serve_http(Handler) as url:
        yield url, paths


def test_a_run_reaches_real_servers(
    server: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a configuration file and an endpoint, the clients themselves send events and metrics."""
    url, paths = server
    file = tmp_path / "openlineage.yml"
    file.write_text(f"transport:\n  type: http\n  url: {url}\n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    settings = LineageSettings(enabled=True, config_file=file)
    with open_exporters(settings, NAMES, "lake", "streaming", {"OTEL_EXPORTER_OTLP_ENDPOINT": url}) as exporters:
        assert len(exporters.listeners) == 2
        for listener in exporters.listeners:
            listener.on_step(StepReport("db.t", "part read", 1, 0.1))
    assert paths.count("/api/v1/lineage") == 3
    assert "/v1/metrics" in paths


def test_nothing_is_told_by_default() -> None:
    """Without settings and variables there are no listeners, and no package is needed."""
    with open_exporters(LineageSettings(), NAMES, "lake", "sink", {}) as exporters:
        assert exporters == Exporters()


def test_connectors_name_their_datasets(tmp_path: Path) -> None:
    """Topics, tables and indexes of sinks and sources are named by where they are; secrets stay out."""
    catalog = "iceberg.catalog.uri=http://u:secret@rest:8181\niceberg.catalog.type=rest\n"
    lineage = "openlineage.integration.dataset.kafka.bootstrap.servers=named:9092\n"

    def file(text: str) -> list[Path]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.properties"
        path.write_text(text)
        return [path]

    own = catalog.replace("iceberg.catalog.", "debezium.sink.iceberg.")
    sink = load(file(f"topics=t\nbootstrap.servers=one:1,two:2\n{own}"), environ={})
    names = sink_names(None, sink)  # type: ignore[arg-type]
    assert (names.describe_other("t"), names.table("db.t").namespace) == (
        Dataset("kafka://one:1", "t"),
        "http://rest:8181",
    )
    assert (names.table("t").name, names.table("db.t").name) == ("default.t", "db.t")
    common = "connector.class=IcebergSource\nbootstrap.servers=one:1\ntopic.prefix=p\n" + catalog + lineage
    names = source_names(None, load_source(file(common), environ={}))  # type: ignore[arg-type]
    assert names.describe_other("db.t") == Dataset("kafka://named:9092", "p.db.t")
    assert names.table("db.t").namespace == "http://rest:8181"
    search = "debezium.sink.type=opensearch\nconnection.url=http://h:9200\n"
    names = source_names(None, load_source(file(common + search), environ={}))  # type: ignore[arg-type]
    assert names.describe_other("db.T") == Dataset("http://h:9200", "p.db.t")


def test_events_are_counted_by_their_type() -> None:
    """Creates, updates, deletes and reads each have theirs; what is no such event has none."""
    reader = InMemoryMetricReader()
    listener = TelemetryListener(MeterProvider([reader]).get_meter("test"), "lake", "streaming", Clock())
    listener.on_batch(BatchReport(1, 0.5, {}, metrics=TaskMetrics(events=9, operations=Counter(c=3, u=2, d=1, m=1))))
    listener.on_step(StepReport("db.t", "part read", 1, 0.5, operations={"r": 7}))
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}
    points = metrics["debezium.event.count"].data.data_points
    counts = {point.attributes.get("debezium.event.type"): point.value for point in points}
    assert counts == {"create": 3, "update": 2, "delete": 1, "read": 7, None: 3}


def test_counts_begin_with_none() -> None:
    """What has not happened yet is told as 0: a count that begins with the first dead letter shows no increase."""
    reader = InMemoryMetricReader()
    TelemetryListener(MeterProvider([reader]).get_meter("test"), "lake", "sink", Clock())
    told = measured(reader)
    counts = ("event.erroneous", "event.filtered", "event.skipped", "transaction.committed")
    assert [told[f"debezium.{name}.count"] for name in counts] == [0] * len(counts)


def test_a_cluster_that_does_not_answer_is_told() -> None:
    """The status of the connection is that of the last look at the cluster."""
    reader, answers = InMemoryMetricReader(), [True]
    meter = MeterProvider([reader]).get_meter("test")
    TelemetryListener(meter, "lake", "sink", Clock(), is_connected=lambda: answers[-1])
    told = [measured(reader)["debezium.connection.status"]]
    answers.append(False)
    assert [*told, measured(reader)["debezium.connection.status"]] == [1, 0]


def test_snapshots_that_begin_anew_leave_an_aborted_one_behind() -> None:
    """What became of snapshots is told of the last ones: completed or aborted, not both."""
    reader = InMemoryMetricReader()
    listener = TelemetryListener(MeterProvider([reader]).get_meter("test"), "lake", "streaming", Clock())
    states = []
    ends: tuple[SnapshotStage, ...] = ("ABORTED", "TABLE_SCAN_COMPLETED", "ABORTED")
    for end in ends:
        listener.on_snapshot(SnapshotReport("Initial Snapshot", "STARTED", "", ("db.t",), "db.t"))
        listener.on_snapshot(SnapshotReport("Initial Snapshot", end, "", ("db.t",), "db.t"))
        told = measured(reader)
        states.append((told["debezium.snapshot.completed"], told["debezium.snapshot.aborted"]))
    assert states == [(0, 1), (1, 0), (0, 1)]


def measured(reader: InMemoryMetricReader) -> dict[str, Any]:
    """The newest value of each metric."""
    data = reader.get_metrics_data()
    assert data is not None
    found = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        (point,) = metric.data.data_points
        assert point.attributes["debezium.logical.name"] == "lake"
        found[metric.name] = getattr(point, "value", None)
    return found
