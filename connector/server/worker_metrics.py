"""Connectors -> the metrics of Kafka Connect's worker: how many there are, and in which state."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from connector.runtime.lifecycle import Lifecycle
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
        self._connectors, self._lock = connectors, threading.Lock()
        self._lives = set[Lifecycle]()
        self._ended = Counter[str]()

    def samples(self) -> Iterator[MetricSample]:
        """Return the values of now."""
        connectors = self._connectors()
        totals = {
            "connector_count": len(connectors),
            "task_count": sum(one.lifecycle.has_task for one in connectors),
            **self._count_starts({one.lifecycle for one in connectors}),
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

    def _count_starts(self, lives: set[Lifecycle]) -> dict[str, int]:
        """Return the counts of all starts, those of connectors that are gone or were replaced among them."""
        with self._lock:
            for one in self._lives - lives:
                self._ended.update(_count_life(one))
            self._lives = lives
            total = sum((_count_life(one) for one in lives), self._ended.copy())
        return {name: total[name] for name in _count_life(Lifecycle())}


def _count_life(life: Lifecycle) -> Counter[str]:
    return Counter(
        {
            "connector_startup_attempts_total": life.starts,
            "connector_startup_failure_total": life.failures,
            "connector_startup_success_total": life.successes,
        }
    )
