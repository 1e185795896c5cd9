"""What dashboards, alerts and the page of names ask for by name and label -> series that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.prometheus.jvm_metrics import JvmMetrics
from connector.runtime.monitoring.prometheus.reference import REFERENCE_PAGE, chapters, render_markdown
from connector.server.worker_metrics import WorkerMetrics
from tests.runs.metrics import JVM, maintenance_metrics, scrape, sink_metrics, source_metrics
from tests.servers.connectors import InMemoryConnector

ROOT = Path(__file__).parents[2]
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
    found = scrape(sink_metrics(), source_metrics(), jvm, worker)
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
    found = scrape(source_metrics())
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


def test_the_page_of_names_is_not_stale() -> None:
    """The page in docs/ is what the declarations say, and has every name that is served."""
    assert (ROOT / REFERENCE_PAGE).read_text("utf-8") == render_markdown(), (
        "run python -m connector.runtime.monitoring.prometheus.reference"
    )
    page = render_markdown()
    served = scrape(
        sink_metrics(),
        source_metrics(),
        maintenance_metrics(),
        WorkerMetrics(lambda: [InMemoryConnector("s", {}, Lifecycle())]),
    )
    assert [name for name in served if f"`{name}`" not in page and not name.startswith("process_")] == []
