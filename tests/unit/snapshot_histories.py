"""Numbers, times and counts -> summaries of a table's snapshots."""

from __future__ import annotations

from connector.maintenance.table_state import SnapshotSummary

S = 1000


NOW_MS = 10_000_000 * S


def make_snapshot(number: int, at_s: int, **counts: str) -> SnapshotSummary:
    summary = {name.replace("_", "-"): text for name, text in counts.items()}
    return SnapshotSummary(number, at_s * S, "overwrite", summary)


def make_history(*snapshots: SnapshotSummary) -> list[SnapshotSummary]:
    return sorted(snapshots, key=lambda each: -each.snapshot_id)
