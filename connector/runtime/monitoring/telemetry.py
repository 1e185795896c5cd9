"""Reports of a run -> OpenTelemetry metrics by Debezium's names, pushed where the `OTEL_*` variables say.

Off unless one of them names an endpoint; the exporter has a thread of its own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import attrs
import structlog

from connector.runtime.monitoring.listeners import BatchReport, SnapshotReport, StepReport

Context = Literal["streaming", "sink"]
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Whether the `OTEL_*` variables ask for metrics (pure)."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_METRICS_EXPORTER") == "none":
        return False
    switch = environ.get("OTEL_ENABLED", "").lower()
    return switch != "false" and (switch == "true" or any(environ.get(name) for name in _ENDPOINTS))


@attrs.define
class _SnapshotState:
    """How the snapshots are, as gauges tell."""

    running: set[str] = attrs.field(factory=set)
    tables: set[str] = attrs.field(factory=set)
    began: float | None = None
    seconds: float = 0.0
    paused_at: float | None = None
    paused_seconds: float = 0.0
    completed: int = 0
    aborted: int = 0

    def seconds_paused(self, now_s: float) -> float:
        """How long they were paused so far."""
        return self.paused_seconds + (0.0 if self.paused_at is None else now_s - self.paused_at)


@attrs.frozen
class BatchLimits:
    """The most that a batch of a sink may hold: what Debezium calls its queue."""

    events: int
    size_bytes: int


_EVENT_TYPES = {"c": "create", "u": "update", "d": "delete", "r": "read"}


class TelemetryListener:
    """A `SinkListener`, `SourceListener` and `SnapshotListener` that counts by OpenTelemetry's instruments."""

    def __init__(
        self,
        meter: Any,
        server: str,
        context: Context,
        now_s: Callable[[], float] = time.monotonic,
        limits: BatchLimits | None = None,
        wall_s: Callable[[], float] = time.time,
        is_connected: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make the instruments.

        Args:
            meter: OpenTelemetry's.
            server: the connector's logical name.
            context: of its metrics, in Debezium's words.
            now_s: a clock.
            limits: of its batches; None where there are none.
            wall_s: seconds since 1970.
            is_connected: whether the cluster answered when it was last looked at.
        """
        self._about = {"debezium.logical.name": server, "debezium.task.id": "0", "debezium.context": context}
        self._in_snapshots = {**self._about, "debezium.context": "snapshot"}
        self._now_s, self._last_s, self._wall_s = now_s, now_s(), wall_s
        self._lag_s: float | None = None
        self._last_events = self._last_bytes = self._steps = 0
        self._snapshots = _SnapshotState()
        counter = meter.create_counter
        self._events = counter("debezium.event.count", unit="{event}")
        self._erroneous = counter("debezium.event.erroneous.count", unit="{event}")
        self._filtered = counter("debezium.event.filtered.count", unit="{event}")
        self._skipped = counter("debezium.event.skipped.count", unit="{event}")
        self._transactions = counter("debezium.transaction.committed.count", unit="{transaction}")
        for counted in (self._erroneous, self._filtered, self._skipped, self._transactions):
            counted.add(0, self._about)  # A counter that appears with the first of something shows no increase.
        self._seconds = meter.create_histogram("icebridge.step.duration", unit="s")
        self._observe(meter, "debezium.event.time_since_last", lambda: now_s() - self._last_s, self._about, "s")
        self._observe(meter, "debezium.source.lag", lambda: self._lag_s, self._about, "s")
        self._observe(meter, "debezium.connection.status", lambda: int(is_connected()), self._about)
        if limits is not None:
            self._observe_queue(meter, limits)
        self._observe_snapshots(meter)

    def on_batch(self, report: BatchReport) -> None:
        """Count a batch."""
        metrics = report.metrics
        self._count(metrics.events, metrics.operations, report.seconds)
        self._erroneous.add(report.dead_letters, self._about)
        self._filtered.add(metrics.ignored + metrics.late, self._about)
        self._last_events, self._last_bytes = metrics.events, metrics.size_bytes
        if report.newest_ms:
            self._lag_s = max(0.0, self._wall_s() - max(report.newest_ms.values()) / 1000)

    def on_step(self, report: StepReport) -> None:
        """Count a step, or a snapshot of the table that was skipped."""
        self._steps += 1
        if report.kind == "snapshot skipped":
            self._skipped.add(1, self._about)
            return
        if report.committed_ms is not None:
            self._lag_s = max(0.0, self._wall_s() - report.committed_ms / 1000)
        self._count(sum(report.operations.values()), report.operations, report.seconds)

    def on_snapshot(self, report: SnapshotReport) -> None:
        """Take note of how snapshots go."""
        state, tables = self._snapshots, set(report.tables or ((report.table,) if report.table else ()))
        match report.stage:
            case "STARTED":
                if not state.running:
                    state.began, state.tables = self._now_s(), set()
                    state.completed = state.aborted = 0
                state.running |= tables
                state.tables |= tables
            case "TABLE_SCAN_COMPLETED":
                state.running.discard(report.table)
                state.completed += 1
            case "ABORTED":
                state.running -= tables
                state.aborted += 1
            case "PAUSED" | "RESUMED":
                now_s = self._now_s()
                state.paused_seconds = state.seconds_paused(now_s)
                state.paused_at = now_s if report.stage == "PAUSED" else None
        if not state.running and state.began is not None:
            now_s = self._now_s()
            state.seconds, state.began = now_s - state.began, None
            state.paused_seconds, state.paused_at = state.seconds_paused(now_s), None

    def _count(self, events: int, operations: Mapping[str, int], seconds: float) -> None:
        """Count events by their type; those of no type, such as tombstones, have none."""
        self._last_s = self._now_s()
        self._transactions.add(1, self._about)
        self._seconds.record(seconds, self._about)
        counts = {_EVENT_TYPES[letter]: count for letter, count in operations.items() if letter in _EVENT_TYPES}
        for kind, count in counts.items():
            self._events.add(count, {**self._about, "debezium.event.type": kind})
        if events > sum(counts.values()):
            self._events.add(events - sum(counts.values()), self._about)

    def _observe_snapshots(self, meter: Any) -> None:
        state, now_s = self._snapshots, self._now_s
        gauges: Mapping[str, Callable[[], float]] = {
            "running": lambda: int(bool(state.running)),
            "completed": lambda: int(state.completed > 0 and not state.running),
            "aborted": lambda: int(state.aborted > 0 and not state.running),
            "paused": lambda: int(state.paused_at is not None),
            "skipped": lambda: int(not state.tables and self._steps > 0),
            "table.count": lambda: len(state.tables),
            "table.remaining_count": lambda: len(state.running),
            "duration": lambda: state.seconds if state.began is None else now_s() - state.began,
            "paused_duration": lambda: state.seconds_paused(now_s()),
        }
        for name, read in gauges.items():
            unit = "s" if name.endswith("duration") else "1"
            self._observe(meter, f"debezium.snapshot.{name}", read, self._in_snapshots, unit)

    def _observe_queue(self, meter: Any, limits: BatchLimits) -> None:
        gauges: Mapping[str, Callable[[], float]] = {
            "limit": lambda: limits.events,
            "remaining_capacity": lambda: max(0, limits.events - self._last_events),
            "size": lambda: self._last_bytes,
            "size.limit": lambda: limits.size_bytes,
        }
        for name, read in gauges.items():
            self._observe(meter, f"debezium.queue.{name}", read, self._about, "By" if "size" in name else "{event}")

    @staticmethod
    def _observe(
        meter: Any, name: str, read: Callable[[], float | None], about: Mapping[str, str], unit: str = "1"
    ) -> None:
        from opentelemetry.metrics import Observation

        def look(_: object) -> list[Observation]:
            value = read()
            return [] if value is None else [Observation(value, about)]

        meter.create_observable_gauge(name, callbacks=[look], unit=unit)


@contextmanager
def open_telemetry(
    environ: Mapping[str, str],
    server: str,
    context: Context,
    limits: BatchLimits | None = None,
    is_connected: Callable[[], bool] = lambda: True,
) -> Iterator[TelemetryListener | None]:
    """Give the listener that the `OTEL_*` variables ask for, None where they ask for none; flushed in the end.

    Operators set the variables for all that runs in a cluster: without the packages a warning is enough.
    """
    if not is_enabled(environ) or not _is_installed():
        yield None
        return
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    try:
        meter = provider.get_meter("icebridge")
        yield TelemetryListener(meter, server, context, limits=limits, is_connected=is_connected)
    finally:
        try:
            provider.shutdown()
        except Exception as error:  # noqa: BLE001 - metrics that cannot be sent end no run
            structlog.get_logger().warning("the last metrics were not sent", reason=type(error).__name__)


def _is_installed() -> bool:
    """Whether OpenTelemetry's packages are there; the log says so where they are not."""
    try:
        importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        importlib.import_module("opentelemetry.sdk.metrics.export")
    except ImportError:
        structlog.get_logger().warning(
            "OTEL_* variables ask for metrics, but OpenTelemetry is not installed: none are pushed",
            todo="pip install 'icebridge[telemetry]', or set OTEL_SDK_DISABLED=true",
        )
        return False
    return True
