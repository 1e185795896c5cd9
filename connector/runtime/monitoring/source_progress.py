"""Reports of a source's steps -> a live line on a terminal, or one JSON log line per step."""

from __future__ import annotations

import structlog

from connector.runtime.monitoring.listeners import StepReport
from connector.runtime.monitoring.status_line import StatusLine


class SourceStatusLine(StatusLine):
    """A `SourceListener` that counts and shows steps; usable as a context manager."""

    def __init__(self, *, terminal: bool) -> None:
        """Begin with nothing.

        Args:
            terminal: draw a live line on stderr; otherwise log one line per step.
        """
        super().__init__("waiting for snapshots", terminal=terminal)
        self.steps = 0

    def on_step(self, report: StepReport) -> None:
        """Show a step."""
        self.steps += 1
        of_parts = {"part": report.part, "parts": report.parts} if report.parts else {}
        part = f" {report.part}/{report.parts}" if report.parts else ""
        events = sum(report.operations.values())
        counted = f", {events:,} events" if events else ""
        if self.show_text(
            f"{report.table}: {report.kind}{part}, snapshot {report.snapshot_id}{counted}, {report.seconds:.2f} s"
        ):
            return
        operation = {"operation": report.operation} if report.operation else {}
        events_by_operation = {"events": dict(report.operations)} if events else {}
        structlog.get_logger().info(
            report.kind,
            table=report.table,
            snapshot_id=report.snapshot_id,
            seconds=round(report.seconds, 3),
            **operation,
            **events_by_operation,
            **of_parts,
        )
