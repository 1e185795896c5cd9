"""Reports -> metrics: figures, names that stock dashboards query, the page of names, and what they cost."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from connector.kafka.dlq.rejected_records import BATCH_STAGE
from connector.maintenance.table_state import TableState
from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.listeners import (
    BatchReport,
    MaintenanceReport,
    SnapshotReport,
    SnapshotStage,
    StepReport,
)
from connector.runtime.monitoring.metrics import FetchMetrics, TaskMetrics
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.runtime.monitoring.prometheus.jvm_metrics import JvmMetrics, JvmState
from connector.runtime.monitoring.prometheus.maintenance_metrics import MaintenanceMetrics
from connector.runtime.monitoring.prometheus.reference import REFERENCE_PAGE, chapters, render_markdown
from connector.runtime.monitoring.prometheus.series import MetricSource
from connector.runtime.monitoring.prometheus.sink_metrics import SinkMetrics
from connector.runtime.monitoring.prometheus.source_metrics import SourceMetrics
from connector.server.worker_metrics import WorkerMetrics
from serde.faults import Stage
from tests.servers.connectors import InMemoryConnector

ROOT = Path(__file__).parents[2]
NOW_S = 1_000.0
REPORT = BatchReport(
    3,
    2.0,
    {("t", 0): 8, ("t", 1): 4},
    metrics=TaskMetrics(
        events=12,
        dead=2,
        tombstones=1,
        truncates=1,
        ignored=1,
        late=1,
        size_bytes=600,
        operations=Counter(c=5, u=3, d=2, r=1),
        fetch_seconds=0.5,
        decode_seconds=0.25,
        fetch=FetchMetrics(
            fetches=4, size_bytes=900, throttle_ms=500, retries=2, wait_ms=1500, readers=frozenset({"native"})
        ),
    ),
    tables={"a.b": {"data_files": 2, "delete_files": 1}},
    dead_letters=2,
    drift={"a.b": 1},
    stages={"VALUE_CONVERTER": 2},
    newest_ms={"a.b": 990_000},
    commit_seconds=0.5,
    schema_changes={"created": 1},
)
JVM = JvmState(
    {area: {"used": 1, "committed": 2, "max": 3, "init": 0} for area in ("heap", "nonheap")},
    {"current": 5, "daemon": 4, "peak": 6, "started_total": 9},
    {"PS Scavenge": (2, 1500)},
    100,
    7000,
)
Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


def _scrape(*sources: MetricSource) -> Found:
    """The scrape of some sources: values by name and labels."""
    registry = MetricsRegistry()
    for source in sources:
        registry.add(source)
    found: Found = {}
    for family in text_string_to_metric_families(registry.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def _sink() -> SinkMetrics:
    sink = SinkMetrics("s", "server1", max_events=100, max_bytes=1000, wall_clock=lambda: NOW_S)
    sink.begin({("t", 0): 0, ("t", 1): 0})
    sink.on_batch(REPORT)
    sink.observe_ends({("t", 0): 10, ("t", 1): 9})
    return sink


def _source() -> SourceMetrics:
    source = SourceMetrics("o", "prefix", wall_clock=lambda: NOW_S)
    source.on_step(StepReport("a.b", "part read", 1, 0.5, "append", 1, 2, {"r": 7}, 900_000))
    source.on_step(
        StepReport("a.c", "snapshot published", 2, 0.5, "overwrite", 0, 0, {"c": 2, "u": 1, "d": 1}, 995_000)
    )
    source.on_step(StepReport("a.c", "snapshot skipped", 3, 0.1, "replace"))
    source.on_round()
    return source


def test_a_batch_is_in_every_family() -> None:
    """Debezium's names, both of Connect's, and our own tell the same."""
    found = _scrape(_sink())

    def value(name: str, /, **labels: str) -> float:
        return found[name][tuple(sorted(labels.items()))]

    debezium = {"plugin": "iceberg", "name": "server1"}
    streaming = {**debezium, "context": "streaming"}
    assert value("debezium_metrics_TotalNumberOfEventsSeen", **streaming) == 12
    assert value("debezium_metrics_TotalNumberOfCreateEventsSeen", **streaming) == 6
    assert value("debezium_metrics_MilliSecondsBehindSource", **streaming) == 10_000
    assert value("debezium_metrics_MilliSecondsSinceLastEvent", **streaming) == 0
    assert value("debezium_metrics_NumberOfErroneousEvents", **streaming) == 2
    assert value("debezium_metrics_NumberOfEventsFiltered", **streaming) == 2
    assert value("debezium_metrics_Connected", **streaming) == 1
    assert value("debezium_metrics_QueueRemainingCapacity", **streaming) == 88
    sink = {**debezium, "context": "sink", "task": "0"}
    written = {"Writes": 9, "Deletes": 3, "Truncates": 1, "ErrantRecords": 2, "TablesCreated": 1, "TablesAltered": 0}
    assert {name: value(f"debezium_metrics_TotalNumberOf{name}", **sink) for name in written} == written
    task = {"connector": "s", "task": "0"}
    for group in ("kafka_connect_sink_task", "kafka_connect_sink_task_metrics"):
        assert value(f"{group}_sink_record_read_total", **task) == 12
        assert value(f"{group}_put_batch_avg_time_ms", **task) == 2000
        assert value(f"{group}_sink_record_lag_max", **task) == 5
        assert value(f"{group}_partition_count", **task) == 2
    for group in ("kafka_connect_task_error", "kafka_connect_task_error_metrics"):
        assert value(f"{group}_deadletterqueue_produce_requests", **task) == 2
        assert value(f"{group}_last_error_timestamp", **task) == NOW_S * 1000
    table = {"connector": "s", "table": "a.b"}
    assert value("icebridge_data_files_total", **table) == 2
    assert value("icebridge_delete_files_total", **table) == 1
    assert value("iceberg_schema_drift_count", **table) == 1
    assert value("icebridge_table_lag_seconds", **table) == 10
    assert value("icebridge_offset_lag", connector="s", topic="t") == 7
    assert value("icebridge_dead_letters_total", connector="s", stage="VALUE_CONVERTER") == 2
    assert value("icebridge_late_events_total", connector="s") == 1
    assert value("icebridge_commit_seconds_total", connector="s") == 0.5
    fetched = {"es": 4, "_bytes": 900, "_bytes_per_second": 15, "_wait_seconds": 1.5, "_throttle_seconds": 0.5}
    ends = {what: "" if what == "_bytes_per_second" else "_total" for what in fetched}
    assert {what: value(f"icebridge_fetch{what}{ends[what]}", connector="s") for what in fetched} == fetched
    assert value("icebridge_fetch_retries_total", connector="s") == 2
    assert value("icebridge_fetch_batches_total", connector="s", reader="native") == 1
    assert value("kafka_consumer_incoming_byte_total", clientid="s") == 900


def test_dead_letters_are_counted_from_zero() -> None:
    """Before a record has failed each stage is there with 0: else the first failures would be no increase."""
    sink = SinkMetrics("s", "server1", max_events=100, max_bytes=1000, wall_clock=lambda: NOW_S)
    found = _scrape(sink)["icebridge_dead_letters_total"]
    assert {dict(labels)["stage"] for labels in found} == {*get_args(Stage), BATCH_STAGE}
    assert set(found.values()) == {0.0}


def test_a_table_that_is_up_to_date_has_no_lag() -> None:
    """However old its newest event is."""
    sink = _sink()
    sink.observe_ends({("t", 0): 8, ("t", 1): 4})
    assert set(_scrape(sink)["icebridge_table_lag_seconds"].values()) == {0.0}
    sink.observe_ends(None)
    assert next(iter(_scrape(sink)["debezium_metrics_Connected"].values())) == 0


def test_steps_are_in_every_family() -> None:
    """Snapshot and streaming are told apart, as Debezium's are."""
    found = _scrape(_source())

    def value(name: str, context: str) -> float:
        labels = {"plugin": "iceberg", "name": "prefix", "context": context}
        return found[f"debezium_metrics_{name}"][tuple(sorted(labels.items()))]

    assert value("TotalNumberOfEventsSeen", "snapshot") == 7
    assert value("TotalNumberOfEventsSeen", "streaming") == 4
    assert value("TotalNumberOfDeleteEventsSeen", "streaming") == 1
    assert value("NumberOfEventsSkipped", "streaming") == 1
    assert value("MilliSecondsBehindSource", "streaming") == 5_000
    behind = {"MinValue": 5_000, "MaxValue": 100_000, "AverageValue": 52_500, "P50": 5_000, "P95": 100_000}
    assert {name: value(f"MilliSecondsBehindSource{name}", "streaming") for name in behind} == behind
    snapshot = {"TotalTableCount": 1, "RemainingTableCount": 1, "SnapshotRunning": 1, "SnapshotCompleted": 0}
    assert {name: value(name, "snapshot") for name in snapshot} == snapshot
    assert set(found["debezium_metrics_RowsScanned"].values()) == {7.0}


def test_a_pause_is_told_in_seconds() -> None:
    """While it lasts too; a snapshot that is stopped is paused no longer."""
    now = [NOW_S]
    source = SourceMetrics("o", "prefix", wall_clock=lambda: now[0])

    def told() -> tuple[float, float]:
        found = _scrape(source)
        names = ("debezium_metrics_SnapshotPaused", "debezium_metrics_SnapshotPausedDurationInSeconds")
        paused, seconds = (next(iter(found[name].values())) for name in names)
        return paused, seconds

    def hear(stage: SnapshotStage, *tables: str) -> tuple[float, float]:
        source.on_snapshot(SnapshotReport("Incremental Snapshot", stage, "1", tables))
        now[0] += 3
        return told()

    assert hear("STARTED", "a.b", "a.c") == (0, 0)
    assert hear("PAUSED", "a.b", "a.c") == (1, 3)
    assert hear("RESUMED", "a.b", "a.c") == (0, 3)
    assert hear("PAUSED", "a.b", "a.c") == (1, 6)
    assert hear("STARTED", "a.d") == (1, 9)
    assert hear("ABORTED", "a.c", "a.b") == (1, 12)
    assert hear("ABORTED", "a.d") == (0, 12)  # stopped while it was paused
    assert hear("STARTED", "a.b") == (0, 12)


def test_statistics_without_values() -> None:
    """-1 before anything was committed, as Debezium's."""
    found = _scrape(SinkMetrics("s", "server1", max_events=1, max_bytes=1))
    names = ("MinValue", "MaxValue", "AverageValue", "P50", "P95", "P99")
    told = [next(iter(found[f"debezium_metrics_MilliSecondsBehindSource{name}"].values())) for name in names]
    assert told == [-1.0] * 6


def test_a_source_that_falls_behind() -> None:
    """How long the oldest unpublished snapshot of a table waits; nothing where none does."""
    source = _source()
    source.on_look("a.b", 940_000)
    source.on_look("a.c", None)
    lag = _scrape(source)["icebridge_table_lag_seconds"]
    assert {dict(labels)["table"]: value for labels, value in lag.items()} == {"a.b": 60.0, "a.c": 0.0}


def test_an_initial_snapshot_that_is_given_up() -> None:
    """It is aborted, not running, and its table remains; once it is read further it runs again."""
    source = _source()

    def told() -> dict[str, float]:
        found = _scrape(source)
        names = ("SnapshotAborted", "SnapshotRunning", "SnapshotCompleted", "RemainingTableCount", "SnapshotPaused")
        return {name: next(iter(found[f"debezium_metrics_{name}"].values())) for name in names}

    source.on_snapshot(SnapshotReport("Initial Snapshot", "ABORTED", table="a.b"))
    assert list(told().values()) == [1, 0, 0, 1, 0]
    source.on_snapshot(SnapshotReport("Incremental Snapshot", "PAUSED", "7", ("a.b",)))
    source.on_step(StepReport("a.b", "part read", 1, 0.5, "append", 1, 2, {"r": 7}, 900_000))
    assert list(told().values()) == [0, 1, 0, 1, 1]
    # One that a signal asked for, and that was given up, is none of the initial ones.
    source.on_snapshot(SnapshotReport("Initial Snapshot", "ABORTED", "8", table="a.b"))
    assert told()["SnapshotAborted"] == 0


STATE = TableState(
    3,
    900,
    2,
    1,
    0,
    4,
    metadata_files=7,
    small_files=2,
    equality_delete_files=1,
    position_delete_files=0,
    deletion_vectors=1,
    orphan_bytes=80,
)
REWRITTEN = {"removed": 5, "added": 1, "bytes": 700, "position_delete_files": 2}


def _maintenance() -> MaintenanceMetrics:
    metrics = MaintenanceMetrics("s", lambda: NOW_S)
    metrics.on_task(MaintenanceReport("a.b", "rewrite", "done", 2.0, REWRITTEN))
    metrics.on_task(MaintenanceReport("a.b", "rewrite", "lost", 1.0))
    metrics.on_task(MaintenanceReport("a.b", "expire", "failed", 0.5))
    expired = {"snapshots": 2, "files": 10, "data_files": 1, "manifests": 4, "manifest_lists": 5}
    metrics.on_task(MaintenanceReport("a.b", "expire", "done", 0.5, expired))
    metrics.on_task(MaintenanceReport("a.b", "convert", "done", 0.5, {"delete_files": 6, "data_files": 2}))
    metrics.on_task(MaintenanceReport("a.b", "orphans", "done", 0.5, {"removed": 8, "orphan_bytes": 80}))
    metrics.on_table("a.b", STATE.figures)
    return metrics


def test_maintenance_is_counted() -> None:
    """What each task did and how it ended, when it last did something, and what is left in the table."""
    found = _scrape(_maintenance())

    def value(name: str, **labels: str) -> float:
        return found[f"icebridge_{name}"][tuple(sorted({"connector": "s", "table": "a.b", **labels}.items()))]

    rewrite = {"task": "rewrite"}
    runs = {result: value("maintenance_runs_total", **rewrite, result=result) for result in ("done", "lost")}
    assert runs == {"done": 1, "lost": 1}
    assert value("maintenance_runs_total", task="expire", result="failed") == 1
    assert (value("maintenance_seconds_total", **rewrite), value("maintenance_seconds", **rewrite)) == (3, 1)
    assert value("maintenance_bytes_rewritten_total", **rewrite) == 700
    removed = {
        (str(labels["task"]), str(labels["kind"])): count
        for key, count in found["icebridge_maintenance_files_removed_total"].items()
        if count and (labels := dict(key))
    }
    assert removed == {
        ("rewrite", "data"): 5,
        ("rewrite", "position_delete"): 2,
        ("expire", "data"): 1,
        ("expire", "manifest"): 4,
        ("expire", "manifest_list"): 5,
        ("convert", "equality_delete"): 6,
        ("orphans", "orphan"): 8,
    }
    assert value("maintenance_conflicts_total", **rewrite) == 1
    assert value("maintenance_last_success_timestamp_seconds", **rewrite) == NOW_S
    left = {"data_files": 3, "size_bytes": 900, "delete_files": 2, "equality_deletes": 1, "snapshots": 4}
    left |= {"small_files": 2, "equality_delete_files": 1, "position_delete_files": 0, "deletion_vectors": 1}
    left |= {"metadata_files": 7, "orphan_bytes": 80}
    assert {name: value(f"table_{name}") for name in left} == left


def test_what_nobody_has_counted_of_a_table_is_not_told() -> None:
    """Rather than 0: files by kind, and orphans, are there once somebody has looked."""
    metrics = MaintenanceMetrics("s", lambda: NOW_S)
    metrics.on_table("a.b", TableState(3, metadata_files=1).figures)
    found = _scrape(metrics)
    assert {"icebridge_table_data_files", "icebridge_table_metadata_files"} <= found.keys()
    uncounted = ("small_files", "equality_delete_files", "position_delete_files", "deletion_vectors", "orphan_bytes")
    assert not {f"icebridge_table_{name}" for name in uncounted} & found.keys()


DEBEZIUM_DASHBOARD = (
    "debezium_metrics_TotalNumberOfEventsSeen",
    "debezium_metrics_MilliSecondsSinceLastEvent",
    "debezium_metrics_NumberOfEventsSkipped",
    "debezium_metrics_Connected",
    "debezium_metrics_TotalTableCount",
    "debezium_metrics_RemainingTableCount",
    "debezium_metrics_SnapshotRunning",
    "debezium_metrics_SnapshotCompleted",
    "debezium_metrics_SnapshotAborted",
    "debezium_metrics_RowsScanned",
    "kafka_connect_metrics_incoming_byte_rate",
    "kafka_connect_metrics_outgoing_byte_rate",
    "jvm_memory_bytes_used",
    "jvm_memory_bytes_max",
    "jvm_threads_current",
    "jvm_threads_peak",
    "jvm_threads_started_total",
)
CONNECTOR_DASHBOARD = (
    "debezium_metrics_MilliSecondsBehindSource",
    "debezium_metrics_QueueTotalCapacity",
    "debezium_metrics_QueueRemainingCapacity",
    "debezium_metrics_NumberOfEventsFiltered",
    "debezium_metrics_NumberOfErroneousEvents",
    "debezium_metrics_NumberOfCommittedTransactions",
    "debezium_metrics_SnapshotDurationInSeconds",
)
STRIMZI_DASHBOARD = (
    "kafka_connect_worker_connector_count",
    "kafka_connect_worker_task_count",
    "kafka_consumer_incoming_byte_total",
    "kafka_producer_outgoing_byte_total",
    "jvm_memory_bytes_used",
    "jvm_gc_collection_seconds_sum",
    "jvm_threads_current",
    "kafka_connect_worker_connector_running_task_count",
    "kafka_connect_worker_connector_paused_task_count",
    "kafka_connect_worker_connector_failed_task_count",
    "kafka_connect_worker_connector_unassigned_task_count",
    "kafka_connect_worker_connector_destroyed_task_count",
    "kafka_consumer_connection_count",
    "kafka_producer_connection_count",
    "kafka_connect_connector_status",
    "kafka_connect_connector_task_status",
)


@pytest.mark.parametrize(
    "names", [DEBEZIUM_DASHBOARD, CONNECTOR_DASHBOARD, STRIMZI_DASHBOARD], ids=["debezium", "connector", "strimzi"]
)
def test_what_stock_dashboards_query_is_served(names: tuple[str, ...]) -> None:
    """Every name of a query has a value, with the labels that it selects by."""
    jvm = JvmMetrics()
    jvm.state = JVM
    worker = WorkerMetrics(lambda: [InMemoryConnector("s", {}, Lifecycle())])
    found = _scrape(_sink(), _source(), jvm, worker)
    assert [name for name in names if name not in found] == []
    contexts = {dict(labels)["context"] for labels in found["debezium_metrics_TotalNumberOfEventsSeen"]}
    assert contexts == {"streaming", "snapshot"}
    assert {dict(labels)["area"] for labels in found["jvm_memory_bytes_used"]} == {"heap", "nonheap"}
    assert all("connector" in dict(labels) for labels in found["kafka_connect_worker_connector_running_task_count"])
    assert all({"connector", "status"} <= dict(labels).keys() for labels in found["kafka_connect_connector_status"])
    task = found["kafka_connect_connector_task_status"]
    assert all({"connector", "task", "status"} <= dict(labels).keys() for labels in task)
    selected = {"plugin": "iceberg", "name": "server1", "context": "streaming"}
    assert tuple(sorted(selected.items())) in found["debezium_metrics_MilliSecondsSinceLastEvent"]


BOTH, STREAMING, SNAPSHOT = ("streaming", "snapshot"), ("streaming",), ("snapshot",)
SELECTED: Mapping[str, tuple[str, ...]] = {
    "TotalNumberOfEventsSeen": BOTH,
    "NumberOfEventsSkipped": BOTH,
    "Connected": STREAMING,
    "MilliSecondsSinceLastEvent": STREAMING,
    "TotalTableCount": SNAPSHOT,
    "RemainingTableCount": SNAPSHOT,
    "SnapshotRunning": SNAPSHOT,
    "SnapshotCompleted": SNAPSHOT,
    "SnapshotAborted": SNAPSHOT,
    "RowsScanned": SNAPSHOT,
}
"""What Debezium's dashboard selects by the connector that its two variables choose, and in which contexts."""


@pytest.mark.parametrize("name", list(SELECTED))
def test_what_debeziums_dashboard_selects_has_a_value(name: str) -> None:
    """For the source that its variables, which are filled by a series of the source, let a user choose."""
    found = _scrape(_source())
    variables = next(iter(found["debezium_metrics_TotalNumberOfEventsSeen"]))
    chosen = {key: text for key, text in variables if key in {"plugin", "name"}}
    assert chosen == {"plugin": "iceberg", "name": "prefix"}
    for context in SELECTED[name]:
        wanted = {**chosen, "context": context}.items()
        assert any(wanted <= dict(labels).items() for labels in found[f"debezium_metrics_{name}"]), context


def test_our_dashboard_queries_what_is_declared() -> None:
    """Every name in a query of the dashboard in docker/ is one of ours."""
    dashboard = json.loads((ROOT / "docker/grafana/icebridge.json").read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"(?:icebridge|iceberg|kafka|jvm|debezium)_\w+", query)}
    declared = {series.name for _, _, listed in chapters() for series in listed}
    assert len(queries) > 20
    assert names - declared == set()


def _labels_that_nobody_has(query: str, legend: str = "") -> list[str]:
    """Labels by which a query selects or groups, or that its legend names, and that its series do not have."""
    declared = {series.name: {*series.labels, "instance", "job"} for _, _, listed in chapters() for series in listed}
    declared["up"] = {"instance", "job"}
    read = [name for name in re.findall(r"\w+", re.sub(r"\{.*?\}", "", query)) if name in declared]
    wrong = []
    for name, selected in re.findall(r"(\w+)\{(.*?)\}", query):
        wrong += [f"{name}: {one}" for one in re.findall(r"(\w+)=", selected) if one not in declared[name]]
    named = [one for group in re.findall(r"\bby \(([^)]*)\)", query) for one in re.split(r",\s*", group)]
    named += re.findall(r"\{\{(?:\s*\$labels\.)?(\w+)\s*\}\}", legend)
    return wrong + [f"{name}: {one}" for name in read for one in named if one not in declared[name]]


def test_our_dashboard_and_alerts_select_by_labels_that_there_are() -> None:
    """What they select, group and name by are labels of their series: else a panel is empty, an alert never comes."""
    dashboard = json.loads((ROOT / "docker/grafana/icebridge.json").read_text("utf-8"))
    asked = [(one["expr"], one["legendFormat"]) for panel in dashboard["panels"] for one in panel["targets"]]
    (group,) = yaml.safe_load((ROOT / "docker/config/alerts.yml").read_text("utf-8"))["groups"]
    asked += [(rule["expr"], rule["annotations"]["summary"].replace("{{ $", "{{$")) for rule in group["rules"]]
    assert [wrong for query, legend in asked for wrong in _labels_that_nobody_has(query, legend)] == []
    assert _labels_that_nobody_has('sum by (task) (icebridge_events_total{table="a"})', "{{topic}}") == [
        "icebridge_events_total: table",
        "icebridge_events_total: task",
        "icebridge_events_total: topic",
    ]


def test_names_of_the_jvm_old_and_new() -> None:
    """The JMX exporter renamed its memory series; both are served."""
    jvm = JvmMetrics()
    assert _scrape(jvm).keys().isdisjoint({"jvm_memory_bytes_used"})
    jvm.state = JVM
    found = _scrape(jvm)
    assert found["jvm_memory_used_bytes"] == found["jvm_memory_bytes_used"]
    assert found["jvm_gc_collection_seconds_sum"] == {(("gc", "PS Scavenge"),): 1.5}


def test_the_page_of_names_is_not_stale() -> None:
    """The page in docs/ is what the declarations say, and has every name that is served."""
    assert (ROOT / REFERENCE_PAGE).read_text("utf-8") == render_markdown(), (
        "run python -m connector.runtime.monitoring.prometheus.reference"
    )
    page = render_markdown()
    served = _scrape(
        _sink(), _source(), _maintenance(), WorkerMetrics(lambda: [InMemoryConnector("s", {}, Lifecycle())])
    )
    assert [name for name in served if f"`{name}`" not in page and not name.startswith("process_")] == []
