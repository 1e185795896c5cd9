"""Steps of a captured table -> reports, to everybody who listens."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import attrs

from connector.runtime.monitoring.listeners import (
    ScanStatus,
    SnapshotListener,
    SnapshotReport,
    SnapshotStage,
    SourceListener,
    StepKind,
    StepReport,
)
from connector.source.snapshots.next_step import (
    Ancestor,
)


@attrs.frozen(eq=False)
class CaptureReports:
    """Tells how the capture of one table goes: its steps, and its snapshots."""

    table: str
    listeners: Sequence[SourceListener] = ()
    snapshot_listeners: Sequence[SnapshotListener] = ()

    def report_step(
        self,
        what: StepKind,
        snapshot: Ancestor,
        began: float,
        operations: Mapping[str, int] | None = None,
        parts: tuple[int, int] = (0, 0),
    ) -> None:
        """Report what was done with a snapshot since `began` (monotonic seconds); `parts` are (done, all)."""
        self._hand_on(
            StepReport(
                self.table,
                what,
                snapshot.snapshot_id,
                time.monotonic() - began,
                snapshot.operation,
                *parts,
                operations=operations or {},
                committed_ms=snapshot.timestamp_ms,
            )
        )

    def report_chunk(
        self, snapshot_id: int, number: int, of: int, seconds: float, operations: Mapping[str, int]
    ) -> None:
        """Report a chunk of a snapshot on demand; `snapshot_id` is the newest that was published."""
        part = min(number, of)
        self._hand_on(
            StepReport(self.table, "chunk read", snapshot_id, seconds, part=part, parts=of, operations=operations)
        )

    def _hand_on(self, report: StepReport) -> None:
        for listener in self.listeners:
            listener.on_step(report)

    def report_snapshot(self, report: SnapshotReport) -> None:
        """Report how a snapshot goes."""
        for listener in self.snapshot_listeners:
            listener.on_snapshot(report)

    def report_initial(self, stage: SnapshotStage, part: int = 0, parts: int = 0, rows: int = 0) -> None:
        """Report how the initial snapshot goes: `rows` of `part` parts are read, of `parts`."""
        status: ScanStatus = "" if stage != "TABLE_SCAN_COMPLETED" else "SUCCEEDED" if rows else "EMPTY"
        tables = (self.table,)
        self.report_snapshot(
            SnapshotReport("Initial Snapshot", stage, "", tables, self.table, rows, status, part, parts)
        )
