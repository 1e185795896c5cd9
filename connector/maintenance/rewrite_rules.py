"""Policy + state of a table -> options of Iceberg's rewrite, and which of its commits are let in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from connector.iceberg.commit.commit import REPLACE
from connector.iceberg.commit.commit_summary import MANIFEST_REWRITE
from connector.iceberg.commit.settlement import SnapshotChange
from connector.maintenance.size_tiers import RewritePass
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import MAINTENANCE_TASK, MANIFESTS, REWRITE
from connector.settings.iceberg.maintenance.policies import RewritePolicy

SINGLE_COMMIT_BYTES = 1024**3
"""So much is merged in one commit, unless that has failed before: while Iceberg collects groups of files for a commit
of part of them, one of its threads takes a whole core."""


TURN_BYTES = 128 * 1024**2
"""So much is merged at once while batches wait."""


@attrs.frozen
class WritePermit:
    """Below which folder files are written; `holds` tells right before a commit whether it may still be tried."""

    folder: str | None = None
    holds: Callable[[], bool] = lambda: True

    def accepts(self, made: SnapshotChange, later: Sequence[SnapshotChange]) -> bool:
        """Tell whether a rewrite may be committed upon what came since it began (`commit.settlement.Acceptance`)."""
        return self.holds() and may_land(made, later)


def commits_by_groups(policy: RewritePolicy, state: TableState, *, has_failed: bool) -> bool:
    """Tell whether groups of files are committed as they are ready; `has_failed` says that one commit of all did."""
    return policy.partial_progress and (has_failed or min(policy.max_bytes, state.size_bytes) > SINGLE_COMMIT_BYTES)


def rewrite_options(policy: RewritePolicy, state: TableState, one: RewritePass, *, by_groups: bool) -> dict[str, str]:
    """Return Iceberg's options of one call of `rewrite_data_files`.

    New files keep the sequence number that the table has now, so that equality deletes which come meanwhile apply to
    them: without it any of these would refuse the commit, and a sink brings some every second.

    Args:
        policy: the table's.
        state: the table before it.
        one: which files are meant.
        by_groups: groups of files are committed as they are ready, and one that fails keeps no other back.
    """
    options = {
        "use-starting-sequence-number": "true",
        "partial-progress.enabled": str(by_groups).lower(),
        "min-input-files": str(one.min_files),
        "min-file-size-bytes": str(one.small_bytes),
        "target-file-size-bytes": str(one.target_bytes),
        "max-file-size-bytes": str(one.large_bytes),
        # A group with one file that is full of deletes is rewritten as a whole.
        "delete-ratio-threshold": str(policy.delete_ratio if one.by_deletes else 1.0),
        "max-file-group-size-bytes": str(one.group_bytes),
        "max-files-to-rewrite": str(count_files(policy.max_bytes, state, one)),
        "rewrite-job-order": "files-desc",
    }
    if by_groups:
        options["partial-progress.max-commits"] = str(policy.max_commits)
        options["partial-progress.max-failed-commits"] = str(policy.max_commits)
    if policy.delete_files and one.by_deletes:
        options["delete-file-threshold"] = str(policy.delete_files)
    return options


def count_files(max_bytes: int, state: TableState, one: RewritePass) -> int:
    """Return how many files of the table's mean size there are in so many bytes; as many as are merged at least.

    Files that are merged because they are small are no larger than that, whatever the table's mean is.
    """
    mean_bytes = state.size_bytes // max(1, state.data_files + state.delete_files)
    if not one.by_deletes:
        mean_bytes = min(mean_bytes, one.small_bytes)
    return min(max(2, one.min_files, max_bytes // max(1, mean_bytes)), 2**31 - 1)


def may_land(made: SnapshotChange, later: Iterable[SnapshotChange]) -> bool:
    """Tell whether a rewrite may be committed upon what came since it began.

    Not where it takes deletes along that came since: their rows would live again. Nor upon a conversion, a rewrite of
    another engine, or deletes that the guard gave back: the files that were read do not have what these deleted.
    """
    return not made.revives_rows and not any(_changes_deletes(one) for one in later)


def _changes_deletes(change: SnapshotChange) -> bool:
    harmless = change.summary.get(MAINTENANCE_TASK) in (REWRITE, MANIFESTS) or MANIFEST_REWRITE in change.summary
    return change.operation == REPLACE and not harmless
