"""Snapshot summaries of a table -> what maintenance has to know of it: sizes, deletes, what was done when. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

import attrs

from connector.maintenance.tasks import CONVERT, MAINTENANCE_TASK, TASKS

DELETE_FILES = ("equality_delete_files", "position_delete_files", "deletion_vectors")
FILE_FIGURES = ("data_files", "small_files", *DELETE_FILES, "snapshots", "metadata_files", "orphan_bytes")
"""What people look at first, in the words of the metrics."""
FIGURES = (*FILE_FIGURES, "size_bytes", "delete_files", "equality_deletes", "position_deletes")


@attrs.frozen
class SnapshotSummary:
    """One snapshot: when it was made (epoch milliseconds), which operation it was, and what its summary says.

    `is_first` says that it has no parent; one whose parent has expired still names it. `sequence_number` counts the
    table's commits; 0 in format 1.
    """

    snapshot_id: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]
    is_first: bool = False
    sequence_number: int = 0

    def count(self, name: str) -> int:
        """Return a count of the summary; 0 where it says nothing."""
        text = self.summary.get(name, "")
        return int(text) if text.isdigit() else 0


@attrs.frozen
class Progress:
    """What came since a task was last done, as far back as snapshots are left; `since_ms` None: never seen.

    `size_bytes` are those of data files and delete files. `numbers` are sequence numbers: that of the snapshot where it
    was done, or else of the one before those that are left, and that of the newest one.
    """

    since_ms: int | None = None
    commits: int = 0
    data_files: int = 0
    equality_delete_files: int = 0
    numbers: tuple[int, int] = (0, 0)
    size_bytes: int = 0


@attrs.frozen
class TableState:
    """A table as its newest snapshot's summary tells it; `progress` by task. `newest_id` is 0 without a snapshot.

    Summaries do not tell all: files of some kinds are None where nobody has counted them (`FileCounts`).
    """

    data_files: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    equality_deletes: int = 0
    position_deletes: int = 0
    snapshots: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    newest_id: int = 0
    progress: Mapping[str, Progress] = attrs.field(factory=dict)
    metadata_files: int | None = None
    small_files: int | None = None
    equality_delete_files: int | None = None
    position_delete_files: int | None = None
    deletion_vectors: int | None = None
    orphan_bytes: int | None = None

    @property
    def figures(self) -> dict[str, int]:
        """Return those of its sizes and counts that are known, by name."""
        found = ((name, getattr(self, name)) for name in FIGURES)
        return {name: value for name, value in found if value is not None}

    def since(self, task: str) -> Progress:
        """Return what came since a task was last done."""
        return self.progress.get(task, Progress())


def summarize(ancestors: Sequence[SnapshotSummary], fruitless: Mapping[str, int] | None = None) -> TableState:
    """Return the state of a table by its snapshots, the newest first.

    `fruitless` are snapshots at which tasks found nothing to do: from there on it counts what came, as from those that
    tasks have made.
    """
    if not ancestors:
        return TableState()
    vain = fruitless or {}
    newest = ancestors[0]
    return TableState(
        data_files=_count_all(ancestors, "data-files"),
        size_bytes=newest.count("total-files-size"),
        delete_files=_count_all(ancestors, "delete-files"),
        equality_deletes=_count_all(ancestors, "equality-deletes", CONVERT),
        position_deletes=newest.count("total-position-deletes"),
        snapshots=len(ancestors),
        oldest_ms=ancestors[-1].timestamp_ms,
        newest_ms=newest.timestamp_ms,
        newest_id=newest.snapshot_id,
        progress={task: _measure_progress(ancestors, task, vain.get(task)) for task in TASKS},
    )


def _count_all(ancestors: Sequence[SnapshotSummary], kind: str, task: str | None = None) -> int:
    """Return a total of the newest snapshot; where it tells none, what came since a task, as far as snapshots tell.

    Iceberg tells no totals once a snapshot, such as that of another writer, has told none.
    """
    if f"total-{kind}" in ancestors[0].summary:
        return ancestors[0].count(f"total-{kind}")
    since = takewhile(lambda one: task is None or one.summary.get(MAINTENANCE_TASK) != task, ancestors)
    return sum(one.count(f"added-{kind}") for one in since)


def _measure_progress(ancestors: Sequence[SnapshotSummary], task: str, vain: int | None) -> Progress:
    commits, data_files, deletes, size_bytes, newest = 0, 0, 0, 0, ancestors[0].sequence_number
    for snapshot in ancestors:
        if snapshot.summary.get(MAINTENANCE_TASK) == task or snapshot.snapshot_id == vain:
            numbers = snapshot.sequence_number, newest
            return Progress(snapshot.timestamp_ms, commits, data_files, deletes, numbers, size_bytes)
        if MAINTENANCE_TASK not in snapshot.summary:
            commits += 1
            data_files += snapshot.count("added-data-files")
            deletes += snapshot.count("added-equality-delete-files")
            size_bytes += snapshot.count("added-files-size")
    numbers = max(0, ancestors[-1].sequence_number - 1), newest
    return Progress(None, commits, data_files, deletes, numbers, size_bytes)
