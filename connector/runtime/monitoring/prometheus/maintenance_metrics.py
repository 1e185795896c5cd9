"""Reports of maintenance -> the metrics of one sink's tables."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from connector.runtime.monitoring.listeners import MaintenanceReport, TaskResult
from connector.runtime.monitoring.prometheus import own_series as own
from connector.runtime.monitoring.prometheus.series import MetricSample

RESULTS = get_args(TaskResult)
_REMOVED: Mapping[str, Mapping[str, str]] = {
    "convert": {"delete_files": "equality_delete"},
    "rewrite": {
        "removed": "data",
        "equality_delete_files": "equality_delete",
        "position_delete_files": "position_delete",
    },
    "manifests": {"removed": "manifest"},
    "expire": {
        "data_files": "data",
        "equality_delete_files": "equality_delete",
        "position_delete_files": "position_delete",
        "manifests": "manifest",
        "manifest_lists": "manifest_list",
    },
    "orphans": {"removed": "orphan"},
}
"""What tasks call the files that they take away (see `maintenance.maintainer`), and of which kind these are."""


class MaintenanceMetrics:
    """A `MaintenanceListener` and a `MetricSource`."""

    def __init__(self, connector: str, wall_clock: Callable[[], float] = time.time) -> None:
        """Begin with nothing; `wall_clock` tells seconds since 1970."""
        self._connector, self._clock, self._lock = connector, wall_clock, threading.Lock()
        self._runs = Counter[tuple[str, str, str]]()
        self._sums: dict[tuple[str, str], Counter[str]] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        self._last_seconds: dict[tuple[str, str], float] = {}
        self._done_at: dict[tuple[str, str], float] = {}
        self._tables: dict[str, Mapping[str, int]] = {}

    def on_task(self, report: MaintenanceReport) -> None:
        """Count a task that is over."""
        at = report.table, report.task
        with self._lock:
            self._runs[(*at, report.result)] += 1
            self._sums.setdefault(at, Counter()).update(report.counts)
            self._seconds[at] = self._seconds.get(at, 0.0) + report.seconds
            self._last_seconds[at] = report.seconds
            if report.result == "done":
                self._done_at[at] = self._clock()

    def on_table(self, table: str, figures: Mapping[str, int]) -> None:
        """Take note of a table as it is; of one that is gone nothing is left but what was counted."""
        with self._lock:
            self._tables[table] = dict(figures)
            if not figures:
                del self._tables[table]
                self._done_at = {at: when for at, when in self._done_at.items() if at[0] != table}

    def tables(self) -> dict[str, dict[str, int]]:
        """Return what is known of each table."""
        with self._lock:
            return {table: dict(figures) for table, figures in self._tables.items()}

    def samples(self) -> Iterator[MetricSample]:
        """Return the values of now."""
        with self._lock:
            for table, task in self._seconds:
                for result in RESULTS:  # from 0: a counter that appears with its first failure shows no increase
                    count = self._runs[(table, task, result)]
                    yield own.MAINTENANCE_RUNS.at(count, self._connector, table, task, result)
            for at, seconds in self._seconds.items():
                labels, counts = (self._connector, *at), self._sums[at]
                yield own.MAINTENANCE_SECONDS.at(seconds, *labels)
                yield own.MAINTENANCE_LAST_SECONDS.at(self._last_seconds[at], *labels)
                yield own.MAINTENANCE_BYTES.at(counts["bytes"], *labels)
                for name, kind in _REMOVED.get(at[1], {}).items():
                    yield own.MAINTENANCE_FILES.at(counts[name], *labels, kind)
                yield own.MAINTENANCE_CONFLICTS.at(self._runs[(*at, "lost")], *labels)
                if at in self._done_at:
                    yield own.MAINTENANCE_TIME.at(self._done_at[at], *labels)
            for table, figures in self._tables.items():
                for name, value in figures.items():
                    yield own.TABLE_FIGURES[name].at(value, self._connector, table)
