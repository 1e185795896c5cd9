"""What maintenance counted of a table + the snapshots since -> delete files by kind as they are now. Pure.

Summaries tell how many files of each kind came and went, and no totals by kind: those need a snapshot to begin at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from connector.maintenance.table_state import DELETE_FILES, SnapshotSummary

_CHANGES = dict(zip(DELETE_FILES, ("equality-delete-files", "position-delete-files", "dvs"), strict=True))
"""How summaries call what they count, after `added-` and `removed-`."""
_TOTAL = "total-delete-files"


@attrs.frozen
class FileCounts:
    """What was found in a table: delete files by kind at snapshot `snapshot_id` (0: nobody has counted them).

    `small_files` and `orphan_bytes` are of the last time that somebody looked; None where nobody has.
    """

    snapshot_id: int = 0
    equality_delete_files: int = 0
    position_delete_files: int = 0
    deletion_vectors: int = 0
    small_files: int | None = None
    orphan_bytes: int | None = None

    def document(self) -> dict[str, Any]:
        """Return what is stored."""
        return attrs.asdict(self)

    @staticmethod
    def parse(found: Mapping[str, Any]) -> FileCounts:
        """Read what `document` returned, of this version or another one."""
        names = [field.name for field in attrs.fields(FileCounts)]
        return FileCounts(**{name: found[name] for name in names if name in found})


def count_up_to(counts: FileCounts, ancestors: Sequence[SnapshotSummary]) -> FileCounts | None:
    """Return the counts with delete files as of the newest snapshot; None where that cannot be told.

    Args:
        counts: what is known.
        ancestors: the snapshots, the newest first.
    """
    if not ancestors:
        return FileCounts(0, 0, 0, 0, counts.small_files, counts.orphan_bytes)
    newest = ancestors[0]
    if newest.snapshot_id == counts.snapshot_id:
        return counts
    if newest.summary.get(_TOTAL) == "0":
        return attrs.evolve(counts, snapshot_id=newest.snapshot_id, **dict.fromkeys(_CHANGES, 0))
    found = _add_changes(counts, ancestors)
    # Another writer may tell less of what it did than Iceberg does.
    if found is None or _TOTAL not in newest.summary or sum(found.values()) != newest.count(_TOTAL):
        return None
    return attrs.evolve(counts, snapshot_id=newest.snapshot_id, **found)


def _add_changes(counts: FileCounts, ancestors: Sequence[SnapshotSummary]) -> dict[str, int] | None:
    """Return delete files by kind: those that were counted, or none before the first snapshot, and what came since."""
    changes = dict.fromkeys(_CHANGES, 0)
    for snapshot in ancestors:
        if snapshot.snapshot_id == counts.snapshot_id:
            return {name: getattr(counts, name) + change for name, change in changes.items()}
        for name, kind in _CHANGES.items():
            changes[name] += snapshot.count(f"added-{kind}") - snapshot.count(f"removed-{kind}")
        if snapshot.is_first:
            return changes
    return None
