"""Reports of batches -> what a person sees while the sink runs: a live line on a terminal, else a log line each."""

from __future__ import annotations

import time
from typing import Protocol

import structlog
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Commit(Protocol):
    """A table's commit in a batch."""

    data_files: int
    delete_files: int


class Shown:
    """Counts and shows batches; usable as a context manager."""

    def __init__(self, *, terminal: bool) -> None:
        """Begin with nothing.

        Args:
            terminal: draw a live line on stderr; otherwise log one line per batch.
        """
        self._log = structlog.get_logger()
        self._events = self._dead = self._batches = 0
        self._began = time.monotonic()
        self._progress = _line() if terminal else None
        self._task = self._progress.add_task("waiting for events", total=None) if self._progress else None

    def __enter__(self) -> Shown:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

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
        if self._progress is None or self._task is None:
            self._log.info(
                "batch committed",
                batch=number,
                events=events,
                seconds=round(seconds, 3),
                events_per_second=round(rate),
                dead_letters=dead_letters,
                **details,
            )
            return
        text = f"batch {number}: {events:,} events in {seconds:.2f} s ({rate:,.0f}/s), {self._events:,} in all"
        self._progress.update(self._task, description=text + (f", {self._dead} dead letters" if self._dead else ""))


def _line() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=False)
