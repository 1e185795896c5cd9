"""What a source did, step by step -> a live line on a terminal, or one JSON log line per step."""

from __future__ import annotations

from typing import Protocol

import structlog
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Step(Protocol):
    """One step of a table."""

    @property
    def table(self) -> str: ...  # noqa: D102
    @property
    def what(self) -> str: ...  # noqa: D102
    @property
    def snapshot_id(self) -> int: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def operation(self) -> str: ...  # noqa: D102
    @property
    def part(self) -> int: ...  # noqa: D102
    @property
    def parts(self) -> int: ...  # noqa: D102


class Published:
    """Counts and shows steps; usable as a context manager."""

    def __init__(self, *, terminal: bool) -> None:
        """Begin with nothing.

        Args:
            terminal: draw a live line on stderr; otherwise log one line per step.
        """
        self.steps = 0
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True)) if terminal else None
        self._task = self._progress.add_task("waiting for snapshots", total=None) if self._progress else None

    def __enter__(self) -> Published:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def step(self, done: Step) -> None:
        """Show a step whose events are acknowledged and whose position is stored."""
        self.steps += 1
        of_parts = {"part": done.part, "parts": done.parts} if done.parts else {}
        if self._progress is not None and self._task is not None:
            part = f" {done.part}/{done.parts}" if done.parts else ""
            text = f"{done.table}: {done.what}{part}, snapshot {done.snapshot_id}, {done.seconds:.2f} s"
            self._progress.update(self._task, description=text)
            return
        operation = {"operation": done.operation} if done.operation else {}
        structlog.get_logger().info(
            done.what,
            table=done.table,
            snapshot_id=done.snapshot_id,
            seconds=round(done.seconds, 3),
            **operation,
            **of_parts,
        )
