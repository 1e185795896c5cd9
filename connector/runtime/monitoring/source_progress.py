"""What a source did, step by step -> a live line on a terminal, or one JSON log line per step."""

from __future__ import annotations

from typing import Protocol

import structlog

from connector.runtime.monitoring.status_line import StatusLine


class SourceStep(Protocol):
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


class SourceProgress(StatusLine):
    """Counts and shows steps; usable as a context manager."""

    def __init__(self, *, terminal: bool) -> None:
        """Begin with nothing.

        Args:
            terminal: draw a live line on stderr; otherwise log one line per step.
        """
        super().__init__("waiting for snapshots", terminal=terminal)
        self.steps = 0

    def step(self, done: SourceStep) -> None:
        """Show a step whose events are acknowledged and whose position is stored."""
        self.steps += 1
        of_parts = {"part": done.part, "parts": done.parts} if done.parts else {}
        part = f" {done.part}/{done.parts}" if done.parts else ""
        if self.show_text(f"{done.table}: {done.what}{part}, snapshot {done.snapshot_id}, {done.seconds:.2f} s"):
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
