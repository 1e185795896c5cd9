"""Connectors -> the metrics of Kafka Connect's worker: how many there are, and in which state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from connector.runtime.monitoring.prometheus.connect_series import (
    CONNECTOR_STATUS,
    TASK_STATES,
    TASK_STATUS,
    connect_samples,
)
from connector.runtime.monitoring.prometheus.series import MetricSample
from connector.server.connectors.port import Connector


class WorkerMetrics:
    """A `MetricSource` of a worker."""

    def __init__(self, connectors: Callable[[], Sequence[Connector]]) -> None:
        """Read the connectors that `connectors` returns."""
        self._connectors = connectors

    def samples(self) -> Iterator[MetricSample]:
        """Return the values of now."""
        connectors = self._connectors()
        starts = sum(one.lifecycle.starts for one in connectors)
        failures = sum(one.lifecycle.failures for one in connectors)
        totals = {
            "connector_count": len(connectors),
            "task_count": sum(one.lifecycle.has_task for one in connectors),
            "connector_startup_attempts_total": starts,
            "connector_startup_failure_total": failures,
            "connector_startup_success_total": max(0, starts - failures),
        }
        yield from connect_samples("worker", (), totals)
        for one in connectors:
            state = one.lifecycle.state.lower()
            states = (state,) if one.lifecycle.has_task else ()
            counts = {f"connector_{name}_task_count": float(name in states) for name in TASK_STATES}
            counts["connector_total_task_count"] = float(len(states))
            yield from connect_samples("worker_connector", (one.name,), counts)
            yield CONNECTOR_STATUS.at(1, one.name, "0", state)
            if state != "stopped":
                yield TASK_STATUS.at(1, one.name, "0", state)
            ratios = {"running_ratio": float(state == "running"), "pause_ratio": float(state == "paused")}
            yield from connect_samples("connector_task", (one.name, "0"), ratios)
