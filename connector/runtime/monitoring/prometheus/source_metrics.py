"""Reports of steps -> the metrics of one source."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from connector.runtime.monitoring.listeners import SnapshotReport, StepReport
from connector.runtime.monitoring.prometheus import debezium_series as debezium
from connector.runtime.monitoring.prometheus import own_series as own
from connector.runtime.monitoring.prometheus.connect_series import client_samples, connect_samples
from connector.runtime.monitoring.prometheus.series import MetricSample
from connector.runtime.monitoring.prometheus.windows import Window

TASK = "0"
_OPERATIONS = {"r": "read", "c": "create", "u": "update", "d": "delete"}


@attrs.define
class TableProgress:
    """What was done for one table; `waiting_ms` is when its oldest unpublished snapshot was committed."""

    parts: int = 0
    done: int = 0
    reading_seconds: float = 0.0
    rows_read: int = 0
    steps: Counter[str] = attrs.field(factory=Counter)
    seconds: dict[str, float] = attrs.field(factory=dict)
    operations: Counter[str] = attrs.field(factory=Counter)
    published_ms: int | None = None
    waiting_ms: int | None = None
    failed: bool = False

    @property
    def is_reading(self) -> bool:
        """Whether an initial snapshot has begun and is not complete."""
        return self.done < self.parts

    def begin(self, parts: int) -> None:
        """Take note that an initial snapshot of so many parts begins: what another one before it had read is over."""
        self.parts, self.done, self.rows_read = parts, 0, 0


class SourceMetrics:
    """A `SourceListener`, a `SnapshotListener` and a `MetricSource`; it costs some additions per step."""

    def __init__(self, connector: str, server: str, *, wall_clock: Callable[[], float] = time.time) -> None:
        """Begin with nothing; arguments as of `SinkMetrics`."""
        self.connector, self._server, self._clock = connector, server, wall_clock
        self._lock = threading.Lock()
        self._tables: dict[str, TableProgress] = {}
        self._stopped: dict[str, str] = {}
        self._at: dict[str, float] = {}
        self._behind_ms = -1.0
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        self._held = Counter[str]()
        self._window = Window()
        self.connected = False
        self.rounds = 0

    @property
    def tables(self) -> dict[str, TableProgress]:
        """What was done for each table, by its name with namespace."""
        with self._lock:
            return dict(self._tables)

    @property
    def stopped(self) -> dict[str, str]:
        """Why tables get no more steps, by their names; none of those that do."""
        with self._lock:
            return {table: reason for table, reason in self._stopped.items() if reason}

    def on_step(self, report: StepReport) -> None:
        """Count a step."""
        now, events = self._clock(), sum(report.operations.values())
        with self._lock:
            table = self._tables.setdefault(report.table, TableProgress())
            step = report.kind.replace(" ", "_")
            table.steps[step] += 1
            table.seconds[step] = table.seconds.get(step, 0.0) + report.seconds
            table.operations.update(report.operations)
            table.failed = False
            if report.kind == "part read":
                table.parts, table.done = max(report.parts, report.part), report.part
                table.reading_seconds += report.seconds
                table.rows_read += events
            if report.committed_ms is not None:
                table.published_ms = report.committed_ms
            if report.kind != "snapshot skipped":
                self._at["snapshot" if report.kind == "part read" else "streaming"] = now
                if report.committed_ms is not None:
                    self._behind_ms = max(0.0, now * 1000 - report.committed_ms)
            behind_ms = None if report.kind == "snapshot skipped" or report.committed_ms is None else self._behind_ms
            self._window.add(seconds=report.seconds, records=events, behind_ms=behind_ms)

    def on_snapshot(self, report: SnapshotReport) -> None:
        """Take note of initial snapshots that begin or were given up, and of pauses."""
        with self._lock:
            if report.aggregate == "Initial Snapshot" and not report.id:
                table = self._tables.setdefault(report.table, TableProgress())
                table.failed = report.stage == "ABORTED"
                if report.stage == "STARTED":
                    table.begin(report.chunks)
            self._hold(self._held_after(report))

    def on_look(self, table: str, waiting_ms: int | None) -> None:
        """Take note of when a table's oldest unpublished snapshot was committed; None: there is none."""
        with self._lock:
            self._tables.setdefault(table, TableProgress()).waiting_ms = waiting_ms

    def on_stop(self, table: str, reason: str) -> None:
        """Take note of why a table gets no more steps in this run; no reason: its turns begin."""
        with self._lock:
            self._stopped[table] = reason

    def on_round(self) -> None:
        """Take note that every table was polled."""
        self.rounds += 1

    def samples(self) -> Iterator[MetricSample]:
        """Return the values of now."""
        with self._lock:
            tables = list(self._tables.items())
            yield from self._streaming([one for _, one in tables])
            yield from self._snapshots(tables)
            yield from self._connect(sum(one.operations.total() for _, one in tables))
            yield from self._collect_own(tables)

    def _held_after(self, report: SnapshotReport) -> Counter[str]:
        """Return of which tables snapshots are paused: one that is stopped is so no longer, and nobody resumes it."""
        tables = Counter(report.tables)
        match report.stage:
            case "PAUSED":
                return tables
            case "RESUMED":
                return Counter()
            case "STARTED" if self._held and report.aggregate == "Incremental Snapshot":
                return self._held + tables
            case "ABORTED" if report.aggregate == "Incremental Snapshot":
                return self._held - tables
        return self._held

    def _hold(self, held: Counter[str]) -> None:
        self._paused_seconds = self._paused_until_now()
        self._held, self._paused_at = held, self._clock() if held else None

    def _paused_until_now(self) -> float:
        at = self._paused_at
        return self._paused_seconds if at is None else self._paused_seconds + max(0.0, self._clock() - at)

    def _since(self, context: str) -> float:
        at = self._at.get(context)
        return -1.0 if at is None else (self._clock() - at) * 1000

    def _streaming(self, tables: list[TableProgress]) -> Iterator[MetricSample]:
        operations = sum((one.operations for one in tables), Counter[str]())
        published = sum(one.steps["snapshot_published"] for one in tables)
        values = {
            "Connected": float(self.connected),
            "MilliSecondsSinceLastEvent": self._since("streaming"),
            "MilliSecondsBehindSource": self._behind_ms,
            **self._window.behind(),
            "TotalNumberOfEventsSeen": operations.total() - operations["r"],
            "TotalNumberOfCreateEventsSeen": operations["c"],
            "TotalNumberOfUpdateEventsSeen": operations["u"],
            "TotalNumberOfDeleteEventsSeen": operations["d"],
            "NumberOfEventsFiltered": 0,
            "NumberOfEventsSkipped": sum(one.steps["snapshot_skipped"] for one in tables),
            "NumberOfUnchangedEventsSkipped": 0,
            "NumberOfErroneousEvents": 0,
            "NumberOfCommittedTransactions": published,
        }
        for name, value in values.items():
            yield debezium.STREAMING[name].at(value, debezium.PLUGIN, self._server, "streaming")

    def _snapshots(self, tables: list[tuple[str, TableProgress]]) -> Iterator[MetricSample]:
        labels = (debezium.PLUGIN, self._server, "snapshot")
        read = [one for _, one in tables if one.parts or one.failed]
        left = sum(one.is_reading or one.failed for one in read)
        values = {
            "TotalTableCount": len(read),
            "RemainingTableCount": left,
            "SnapshotRunning": float(any(one.is_reading and not one.failed for one in read)),
            "SnapshotPaused": float(self._paused_at is not None),
            "SnapshotCompleted": float(bool(read) and not left),
            "SnapshotAborted": float(any(one.failed for one in read)),
            "SnapshotSkipped": float(not read and self.rounds > 0),
            "SnapshotDurationInSeconds": sum(one.reading_seconds for one in read),
            "SnapshotPausedDurationInSeconds": self._paused_until_now(),
        }
        for name, value in values.items():
            yield debezium.SNAPSHOT[name].at(value, *labels)
        shared = {
            "TotalNumberOfEventsSeen": sum(one.operations["r"] for _, one in tables),
            "NumberOfEventsSkipped": 0.0,
            "MilliSecondsSinceLastEvent": self._since("snapshot"),
            "Connected": float(self.connected),
        }
        for name in debezium.SNAPSHOT_EVENTS:
            yield debezium.STREAMING[name].at(shared[name], *labels)
        for table, progress in tables:
            if progress.parts:
                yield debezium.ROWS_SCANNED.at(progress.rows_read, *labels, table)

    def _connect(self, events: int) -> Iterator[MetricSample]:
        labels, window = (self.connector, TASK), self._window
        rate = window.rate(lambda one: one.records)
        source = {
            "source_record_poll_total": events,
            "source_record_poll_rate": rate,
            "source_record_write_total": events,
            "source_record_write_rate": rate,
            "poll_batch_avg_time_ms": window.average(lambda one: one.seconds * 1000),
            "poll_batch_max_time_ms": window.maximum(lambda one: one.seconds * 1000),
        }
        yield from connect_samples("source_task", labels, source)
        clients = {
            "kafka_connect_metrics_incoming_byte_rate": 0.0,
            "kafka_connect_metrics_outgoing_byte_rate": 0.0,
            "kafka_consumer_incoming_byte_total": 0.0,
            "kafka_consumer_connection_count": 0.0,
            "kafka_producer_outgoing_byte_total": 0.0,
            "kafka_producer_connection_count": float(self.connected),
        }
        yield from client_samples(self.connector, clients)

    def _collect_own(self, tables: list[tuple[str, TableProgress]]) -> Iterator[MetricSample]:
        now_ms = self._clock() * 1000
        for table, reason in self._stopped.items():
            yield own.TABLE_STOPPED.at(float(bool(reason)), self.connector, table)
        for table, progress in tables:
            waits_ms = 0.0 if progress.waiting_ms is None else max(0.0, now_ms - progress.waiting_ms)
            yield own.TABLE_LAG_SECONDS.at(waits_ms / 1000, self.connector, table)
            for step, count in progress.steps.items():
                yield own.STEPS.at(count, self.connector, table, step)
                yield own.STEP_SECONDS.at(progress.seconds[step], self.connector, table, step)
            for letter, count in progress.operations.items():
                yield own.CHANGES.at(count, self.connector, table, _OPERATIONS.get(letter, letter))
            if progress.parts:
                yield own.SNAPSHOT_PARTS.at(progress.parts, self.connector, table)
                yield own.SNAPSHOT_PARTS_DONE.at(progress.done, self.connector, table)
