"""Reports of batches -> what a person sees while the sink runs: a live line on a terminal, else a log line each."""

from __future__ import annotations

import time

import structlog

from connector.runtime.monitoring.status_line import StatusLine


class SinkProgress(StatusLine):
    """Counts and shows batches; usable as a context manager."""

    def __init__(self, *, terminal: bool) -> None:
        """Begin with nothing.

        Args:
            terminal: draw a live line on stderr; otherwise log one line per batch.
        """
        super().__init__("waiting for events", terminal=terminal)
        self._log = structlog.get_logger()
        self._events = self._dead = self._batches = 0
        self._began = time.monotonic()

    @property
    def events(self) -> int:
        """Events so far."""
        return self._events

    def batch(self, number: int, events: int, seconds: float, dead_letters: int, **details: object) -> None:
        """Show a batch that is committed."""
        self._events += events
        self._dead += dead_letters
        self._batches += 1
        rate = events / seconds if seconds else 0.0
        text = f"batch {number}: {events:,} events in {seconds:.2f} s ({rate:,.0f}/s), {self._events:,} in all"
        if self.show_text(text + (f", {self._dead} dead letters" if self._dead else "")):
            return
        self._log.info(
            "batch committed",
            batch=number,
            events=events,
            seconds=round(seconds, 3),
            events_per_second=round(rate),
            dead_letters=dead_letters,
            **details,
        )
