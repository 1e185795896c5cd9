"""Reports of batches -> a live line on a terminal, or one log line per batch (`batch committed`)."""

from __future__ import annotations

import structlog

from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.monitoring.metrics import FetchMetrics
from connector.runtime.monitoring.status_line import StatusLine


class SinkStatusLine(StatusLine):
    """Counts and shows batches; usable as a context manager."""

    def __init__(self, *, terminal: bool) -> None:
        """Begin with nothing.

        Args:
            terminal: draw a live line on stderr; otherwise log one line per batch.
        """
        super().__init__("waiting for events", terminal=terminal)
        self._log = structlog.get_logger()
        self._events = self._dead = 0

    @property
    def events(self) -> int:
        """Events so far."""
        return self._events

    def on_batch(self, report: BatchReport) -> None:
        """Show a batch that is committed."""
        events, seconds = report.metrics.events, report.seconds
        self._events += events
        self._dead += report.dead_letters
        rate = events / seconds if seconds else 0.0
        text = f"batch {report.batch}: {events:,} events in {seconds:.2f} s ({rate:,.0f}/s), {self._events:,} in all"
        if not self.show_text(text + (f", {self._dead} dead letters" if self._dead else "")):
            self._log.info("batch committed", **_log_fields(report, rate))


def _log_fields(report: BatchReport, rate: float) -> dict[str, object]:
    metrics = report.metrics
    rare = {"nulled": metrics.nulled, "late": metrics.late, "iceberg_schema_drift_count": dict(report.drift)}
    return {
        "batch": report.batch,
        "events": metrics.events,
        "seconds": round(report.seconds, 3),
        "events_per_second": round(rate),
        "dead_letters": report.dead_letters,
        "tables": len(report.tables),
        **report.counts,
        "tombstones": metrics.tombstones,
        "ignored": metrics.ignored,
        **{name: value for name, value in rare.items() if value},
        **_fetch_fields(metrics.fetch),
        "offsets": report.offsets,
    }


def _fetch_fields(fetch: FetchMetrics) -> dict[str, object]:
    """What reading took, where something was read; what is rare only where it happened."""
    if not fetch.fetches:
        return {}
    rare = {"throttle_ms": fetch.throttle_ms, "retries": fetch.retries}
    fields = {"reader": ",".join(sorted(fetch.readers)), "bytes": fetch.size_bytes, "wait_ms": fetch.wait_ms}
    return {"fetch": {**fields, **{name: value for name, value in rare.items() if value}}}
