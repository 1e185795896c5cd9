"""Reports -> the figures that metrics make of them."""

from __future__ import annotations

from typing import get_args
from unittest.mock import Mock

from connector.kafka.dlq.rejected_records import BATCH_STAGE
from connector.maintenance.maintainer import Maintainer
from connector.maintenance.table_state import TableState
from connector.runtime.monitoring.listeners import (
    BatchReport,
    MaintenanceReport,
    SnapshotReport,
    SnapshotStage,
    StepReport,
)
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.runtime.monitoring.prometheus.jvm_metrics import JvmMetrics
from connector.runtime.monitoring.prometheus.maintenance_metrics import MaintenanceMetrics
from connector.runtime.monitoring.prometheus.sink_metrics import SinkMetrics
from connector.runtime.monitoring.prometheus.source_metrics import SourceMetrics
from connector.source.runner import _tell_queue
from connector.source.snapshots.signal import SnapshotKind
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue
from serde.faults import Stage
from tests.runs.metrics import JVM, NOW_S, maintenance_metrics, scrape, sink_metrics, source_metrics


def test_a_batch_is_in_every_family() -> None:
    """Debezium's names, both of Connect's, and our own tell the same."""
    found = scrape(sink_metrics())

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
    found = scrape(sink)["icebridge_dead_letters_total"]
    assert {dict(labels)["stage"] for labels in found} == {*get_args(Stage), BATCH_STAGE}
    assert set(found.values()) == {0.0}


def test_a_table_that_is_up_to_date_has_no_lag() -> None:
    """However old its newest event is."""
    sink = sink_metrics()
    sink.observe_ends({("t", 0): 8, ("t", 1): 4})
    assert set(scrape(sink)["icebridge_table_lag_seconds"].values()) == {0.0}
    sink.observe_ends(None)
    assert next(iter(scrape(sink)["debezium_metrics_Connected"].values())) == 0


def test_a_sink_that_was_not_run_yet_has_no_lag() -> None:
    """Before a run has begun, or while a stored connector is stopped, a topic's whole log is not told as its lag."""
    sink = SinkMetrics("s", "server1", max_events=100, max_bytes=1000, wall_clock=lambda: NOW_S)
    sink.observe_ends({("t", 0): 5_000_000_000})
    assert "icebridge_offset_lag" not in scrape(sink)
    assert set(scrape(sink)["kafka_connect_sink_task_sink_record_lag_max"].values()) == {0.0}
    sink.begin({("t", 0): 4_999_999_999})
    assert set(scrape(sink)["icebridge_offset_lag"].values()) == {1.0}


def test_a_quiet_table_has_no_lag_while_records_of_another_topic_wait() -> None:
    """Of each table its own topics count; where events name their tables any may be for it."""
    now = [NOW_S]
    sink = SinkMetrics("s", "server1", max_events=100, max_bytes=1000, wall_clock=lambda: now[0])
    quiet_ms, busy_ms = 1000, int(NOW_S * 1000) - 2000
    sink.on_batch(BatchReport(1, 0.5, {("q", 0): 5}, newest_ms={"d.quiet": quiet_ms}, topics={"d.quiet": {"q"}}))
    busy = {"d.busy": busy_ms, "d.both": busy_ms}
    sink.on_batch(BatchReport(2, 0.5, {("b", 0): 5}, newest_ms=busy, topics={"d.busy": {"b"}, "d.both": {"b", "q"}}))
    sink.on_batch(BatchReport(3, 0.5, {("b", 0): 6}, newest_ms={"d.named": busy_ms}))
    sink.observe_ends({("q", 0): 5, ("b", 0): 9})
    lag = {dict(labels)["table"]: value for labels, value in scrape(sink)["icebridge_table_lag_seconds"].items()}
    assert lag == {"d.quiet": 0, "d.busy": 2, "d.both": 2, "d.named": 2}
    now[0] += 10
    sink.observe_ends({("q", 0): 6, ("b", 0): 6})
    lag = {dict(labels)["table"]: value for labels, value in scrape(sink)["icebridge_table_lag_seconds"].items()}
    assert lag == {"d.quiet": 10, "d.busy": 0, "d.both": 10, "d.named": 10}


def test_a_table_that_was_quiet_for_days_is_not_days_behind() -> None:
    """A record that has just come has a table that was up to date wait since then, and not since its last event."""
    now = [NOW_S]
    sink = SinkMetrics("s", "server1", max_events=100, max_bytes=1000, wall_clock=lambda: now[0])
    sink.on_batch(BatchReport(1, 0.5, {("t", 0): 5, ("t", 1): 5}, newest_ms={"a.b": 1000}))

    def told(*ends: int, after_s: float) -> float:
        now[0] += after_s
        sink.observe_ends({("t", partition): end for partition, end in enumerate(ends)})
        return next(iter(scrape(sink)["icebridge_table_lag_seconds"].values()))

    assert told(5, 6, after_s=0) == NOW_S - 1  # nobody knows since when it waits
    assert told(5, 5, after_s=1) == 0
    assert told(5, 6, after_s=5) == 5
    assert told(9, 9, after_s=300) == 305
    # All that there was at the last look is read, what came since is not.
    sink.on_batch(BatchReport(2, 0.5, {("t", 0): 9, ("t", 1): 9}, newest_ms={"a.b": 2000}))
    assert told(9, 10, after_s=5) == 5
    sink.begin({("t", 0): 0, ("t", 1): 0})
    assert told(9, 10, after_s=1) == now[0] - 2  # offsets were reset


def test_steps_are_in_every_family() -> None:
    """Snapshot and streaming are told apart, as Debezium's are."""
    found = scrape(source_metrics())

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


def test_connectors_of_one_topic_prefix_tell_no_value_twice() -> None:
    """Where two connectors of a process share what Debezium's names tell them apart by, a scrape has the first's."""
    registry = MetricsRegistry()
    registry.add(source_metrics())
    registry.add(SourceMetrics("other", "prefix", wall_clock=lambda: NOW_S))
    lines = [line.rpartition(" ")[0] for line in registry.render().decode().splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))
    assert 'debezium_metrics_TotalNumberOfEventsSeen{context="streaming",name="prefix",plugin="iceberg"} 4.0' in (
        registry.render().decode()
    )


def test_a_pause_is_told_in_seconds() -> None:
    """While it lasts too; a snapshot that is stopped is paused no longer."""
    now = [NOW_S]
    source = SourceMetrics("o", "prefix", wall_clock=lambda: now[0])

    def told() -> tuple[float, float]:
        found = scrape(source)
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


def test_a_pause_outlasts_the_process() -> None:
    """Snapshots that an earlier process was told to pause are paused for the metrics of the next one, until resumed."""
    waiting = (
        *(QueuedSnapshot("1", table) for table in ("a.b", "a.c")),
        QueuedSnapshot("2", "a.b", SnapshotKind.BLOCKING),
    )

    def told(queue: SnapshotQueue) -> SourceMetrics:
        source = SourceMetrics("o", "prefix", wall_clock=lambda: NOW_S)
        _tell_queue([source], queue)
        return source

    def is_paused(source: SourceMetrics) -> float:
        return next(iter(scrape(source)["debezium_metrics_SnapshotPaused"].values()))

    assert is_paused(told(SnapshotQueue(waiting))) == 0
    source = told(SnapshotQueue(waiting, paused=True))
    assert is_paused(source) == 1
    source.on_snapshot(SnapshotReport("Incremental Snapshot", "ABORTED", "1", ("a.b",)))
    assert is_paused(source) == 1
    source.on_snapshot(SnapshotReport("Incremental Snapshot", "RESUMED", "9", ("a.c",)))
    assert is_paused(source) == 0


def test_statistics_without_values() -> None:
    """-1 before anything was committed, as Debezium's."""
    found = scrape(SinkMetrics("s", "server1", max_events=1, max_bytes=1))
    names = ("MinValue", "MaxValue", "AverageValue", "P50", "P95", "P99")
    told = [next(iter(found[f"debezium_metrics_MilliSecondsBehindSource{name}"].values())) for name in names]
    assert told == [-1.0] * 6


def test_a_source_that_falls_behind() -> None:
    """How long the oldest unpublished snapshot of a table waits; nothing where none does."""
    source = source_metrics()
    source.on_look("a.b", 940_000)
    source.on_look("a.c", None)
    lag = scrape(source)["icebridge_table_lag_seconds"]
    assert {dict(labels)["table"]: value for labels, value in lag.items()} == {"a.b": 60.0, "a.c": 0.0}


def test_a_source_whose_table_stopped() -> None:
    """It is told apart from those that continue, until a run begins its turns again."""
    source = SourceMetrics("o", "prefix")
    for table, reason in (("a.b", ""), ("a.c", ""), ("a.b", "FatalError: gone")):
        source.on_stop(table, reason)
    assert source.stopped == {"a.b": "FatalError: gone"}
    found = scrape(source)["icebridge_source_table_stopped"]
    assert {dict(labels)["table"]: value for labels, value in found.items()} == {"a.b": 1.0, "a.c": 0.0}
    source.on_stop("a.b", "")
    assert source.stopped == {}
    assert set(scrape(source)["icebridge_source_table_stopped"].values()) == {0.0}


def test_an_initial_snapshot_that_is_given_up() -> None:
    """It is aborted, not running, and its table remains; once it is read further it runs again."""
    source = source_metrics()

    def told() -> dict[str, float]:
        found = scrape(source)
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


def test_an_initial_snapshot_runs_from_its_first_part_on() -> None:
    """While the first part is read, which is all of a small table, the snapshot runs; read anew, rows count anew."""
    source = SourceMetrics("o", "prefix", wall_clock=lambda: NOW_S)

    def told() -> list[float]:
        found = scrape(source)
        names = ("SnapshotRunning", "SnapshotCompleted", "RemainingTableCount", "RowsScanned")
        return [next(iter(found[f"debezium_metrics_{name}"].values())) for name in names]

    begins = SnapshotReport("Initial Snapshot", "STARTED", "", ("a.b",), "a.b", chunks=1)
    read = StepReport("a.b", "part read", 1, 0.5, "append", 1, 1, {"r": 7}, 900_000)
    for _ in range(2):
        source.on_snapshot(begins)
        assert told() == [1, 0, 1, 0]
        source.on_step(read)
        assert told() == [0, 1, 0, 7]


def test_maintenance_is_counted() -> None:
    """What each task did and how it ended, when it last did something, and what is left in the table."""
    found = scrape(maintenance_metrics())

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


def test_results_of_maintenance_are_counted_from_zero() -> None:
    """A task that has run has each result, so that its first failure is an increase."""
    metrics = MaintenanceMetrics("s", lambda: NOW_S)
    metrics.on_task(MaintenanceReport("a.b", "rewrite", "done", 2.0))
    told = scrape(metrics)["icebridge_maintenance_runs_total"]
    assert {dict(labels)["result"]: count for labels, count in told.items()} == {"done": 1, "failed": 0, "lost": 0}


def test_a_table_that_is_gone_has_no_figures() -> None:
    """Files of a dropped table, and when it was maintained, are told no longer: nobody could end such an alert."""
    metrics, catalog = maintenance_metrics(), Mock(load=lambda _: None)
    maintainer = Maintainer(Mock(), catalog, Mock(), "s", Mock(), listeners=[metrics])
    assert maintainer.load("a.b") is None
    found = scrape(metrics)
    assert [name for name in found if name.startswith(("icebridge_table_", "icebridge_maintenance_last"))] == []
    assert metrics.tables() == {}
    assert "icebridge_maintenance_runs_total" in found


def test_what_nobody_has_counted_of_a_table_is_not_told() -> None:
    """Rather than 0: files by kind, and orphans, are there once somebody has looked."""
    metrics = MaintenanceMetrics("s", lambda: NOW_S)
    metrics.on_table("a.b", TableState(3, metadata_files=1).figures)
    found = scrape(metrics)
    assert {"icebridge_table_data_files", "icebridge_table_metadata_files"} <= found.keys()
    uncounted = ("small_files", "equality_delete_files", "position_delete_files", "deletion_vectors", "orphan_bytes")
    assert not {f"icebridge_table_{name}" for name in uncounted} & found.keys()


def test_names_of_the_jvm_old_and_new() -> None:
    """The JMX exporter renamed its memory series; both are served."""
    jvm = JvmMetrics()
    assert scrape(jvm).keys().isdisjoint({"jvm_memory_bytes_used"})
    jvm.state = JVM
    found = scrape(jvm)
    assert found["jvm_memory_used_bytes"] == found["jvm_memory_bytes_used"]
    assert found["jvm_gc_collection_seconds_sum"] == {(("gc", "PS Scavenge"),): 1.5}
