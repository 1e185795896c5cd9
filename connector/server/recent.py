"""Reports of batches and steps -> the last of them, and what each minute of the last hour brought, for the page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from connector.redaction import redact
from connector.runtime.monitoring.listeners import BatchReport, StepReport

KEPT = 20
MINUTES = 60


class RecentActivity:
    """A listener of sinks and sources."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        """Begin with nothing."""
        self._clock, self._lock = wall_clock, threading.Lock()
        self._last = deque[dict[str, Any]](maxlen=KEPT)
        self._minutes = deque[tuple[int, int]](maxlen=MINUTES)
        self._stages: dict[str, int] = {}
        self._letters = deque[dict[str, Any]](maxlen=KEPT)

    def on_batch(self, report: BatchReport) -> None:
        """Keep a batch that had events."""
        for stage, count in report.stages.items():
            self._stages[stage] = self._stages.get(stage, 0) + count
        now = round(self._clock(), 3)
        for record, stage, reason in report.reasons:
            self._letters.append({"at": now, "record": record, "stage": stage, "reason": redact(reason)})
        if report.metrics.events:
            self._keep(
                report.metrics.events,
                {
                    "what": f"batch {report.batch}",
                    "table": ", ".join(sorted(report.tables)),
                    "events": report.metrics.events,
                    "seconds": round(report.seconds, 3),
                    "commit_seconds": round(report.commit_seconds, 3),
                    "dead_letters": report.dead_letters,
                    **report.counts,
                },
            )

    def on_step(self, report: StepReport) -> None:
        """Keep a step."""
        part = f" {report.part}/{report.parts}" if report.parts else ""
        events = sum(report.operations.values())
        shown = {"table": report.table, "events": events, "seconds": round(report.seconds, 3)}
        self._keep(events, {"what": report.kind + part, **shown})

    def last(self) -> list[dict[str, Any]]:
        """Return the last batches or steps, the newest first, with their time in seconds since 1970."""
        with self._lock:
            return list(reversed(self._last))

    def dead_letters(self) -> dict[str, int]:
        """Return how many dead letters there were, by the stage that failed."""
        return dict(self._stages)

    def last_dead_letters(self) -> list[dict[str, Any]]:
        """Return the last of them, the newest first: time, record, stage and reason."""
        return list(reversed(self._letters))

    def per_minute(self) -> list[int]:
        """Return the events of each of the last 60 minutes, the oldest first; the last one is not over."""
        now = int(self._clock() // 60)
        with self._lock:
            counts = dict(self._minutes)
        return [counts.get(minute, 0) for minute in range(now - MINUTES + 1, now + 1)]

    def _keep(self, events: int, shown: dict[str, Any]) -> None:
        now = self._clock()
        minute = int(now // 60)
        with self._lock:
            self._last.append({"at": round(now, 3), **shown})
            if self._minutes and self._minutes[-1][0] == minute:
                events += self._minutes.pop()[1]
            self._minutes.append((minute, events))
