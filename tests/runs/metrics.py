"""Reports as runs tell them -> the metrics that have heard them -> what a scrape of these finds."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from connector.maintenance.table_state import TableState
from connector.runtime.monitoring.listeners import (
    BatchReport,
    MaintenanceReport,
    StepReport,
)
from connector.runtime.monitoring.metrics import FetchMetrics, TaskMetrics
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.runtime.monitoring.prometheus.jvm_metrics import JvmState
from connector.runtime.monitoring.prometheus.maintenance_metrics import MaintenanceMetrics
from connector.runtime.monitoring.prometheus.series import MetricSource
from connector.runtime.monitoring.prometheus.sink_metrics import SinkMetrics
from connector.runtime.monitoring.prometheus.source_metrics import SourceMetrics

NOW_S = 1_000.0
REPORT = BatchReport(
    3,
    2.0,
    {("t", 0): 8, ("t", 1): 4},
    metrics=TaskMetrics(
        events=12,
        dead=2,
        tombstones=2,
        lone_tombstones=1,
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


def scrape(*sources: MetricSource) -> Found:
    """The values of some metrics, by name and labels."""
    registry = MetricsRegistry()
    for source in sources:
        registry.add(source)
    found: Found = {}
    for family in text_string_to_metric_families(registry.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def sink_metrics() -> SinkMetrics:
    """Those of a sink after a batch, of which some rows are still to come."""
    sink = SinkMetrics("s", "server1", max_events=100, max_bytes=1000, wall_clock=lambda: NOW_S)
    sink.begin({("t", 0): 0, ("t", 1): 0})
    sink.on_batch(REPORT)
    sink.observe_ends({("t", 0): 10, ("t", 1): 9})
    return sink


def source_metrics() -> SourceMetrics:
    """Those of a source in the middle of a full read of one table, and after two snapshots of another."""
    source = SourceMetrics("o", "prefix", wall_clock=lambda: NOW_S)
    source.on_step(StepReport("a.b", "part read", 1, 0.5, "append", 1, 2, {"r": 7}, 900_000))
    source.on_step(
        StepReport("a.c", "snapshot published", 2, 0.5, "overwrite", 0, 0, {"c": 2, "u": 1, "d": 1}, 995_000)
    )
    source.on_step(StepReport("a.c", "snapshot skipped", 3, 0.1, "replace"))
    source.on_round()
    return source


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


def maintenance_metrics() -> MaintenanceMetrics:
    """Those after each task of maintenance, two of which failed."""
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
