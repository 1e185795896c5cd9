"""Policy + state of a table -> the calls of Iceberg's rewrite that merge its small files by tiers of size. Pure.

Files are merged with files of about their own size, as in an LSM tree: each merge makes a file of a higher tier, so
that a byte is written about once for each tier, however large the table becomes.
"""

from __future__ import annotations

import attrs

from connector.maintenance.table_state import TableState
from connector.settings.iceberg.maintenance.policies import RewritePolicy

RATIO = 4
"""Bounds of neighbouring tiers differ by this factor."""
LEAST_FILES = 5
"""So many files of a tier are merged; more than `RATIO`, so that what they become is not of that tier again."""
_LEAST_BYTES = 1024**2
"""No tier is told apart below this size."""
_MOST_BYTES = 2**61
"""No file aims at more: what is computed of it has to be a `long` of Java."""
_ICEBERGS_SHARE = 0.75
_LARGE_SHARE = 1.8
"""Iceberg's own: below and above these shares of the size aimed at, files are rewritten."""


@attrs.frozen
class RewritePass:
    """One call of Iceberg's rewrite.

    Data files below `small_bytes` are merged in each partition that has `min_files` of them, and with `by_deletes`
    files of which much is deleted are rewritten. New files have about `target_bytes`, larger ones than `large_bytes`
    are cut. A partition's files are read by groups of no more than `group_bytes`.
    """

    small_bytes: int
    min_files: int
    target_bytes: int
    large_bytes: int
    group_bytes: int
    by_deletes: bool = False


def plan_passes(policy: RewritePolicy, state: TableState, target_bytes: int) -> list[RewritePass]:
    """Return the calls of Iceberg's rewrite in their order: what is full of deletes, then small files, smallest first.

    A tier's files are merged where a partition has `LEAST_FILES` of them. Iceberg counts all files below a bound, also
    those of lower tiers: fewer than the bound below asks for, since that one comes first. So each asks for more files.

    Args:
        policy: the table's. Where it says which files are small, or how many are too many, all of them are merged by
            one call, whatever their sizes.
        state: the table before it.
        target_bytes: the size of files that the table's properties ask for.
    """
    wanted = min(policy.target_bytes or target_bytes, _MOST_BYTES)
    if not has_tiers(policy):
        small = min(small_file_bytes(policy, target_bytes), wanted - 1)
        least = policy.min_input_files or LEAST_FILES
        return [RewritePass(small, least, wanted, int(wanted * _LARGE_SHARE) + 1, policy.max_bytes, by_deletes=True)]
    # Files cannot become larger than what is read at a time, which has to be enough for more than one of them.
    goal = wanted if policy.max_bytes >= wanted else max(2, policy.max_bytes * 2 // 3)
    group, large = max(policy.max_bytes, goal * 3 // 2), int(wanted * _LARGE_SHARE) + 1
    passes = [RewritePass(0, LEAST_FILES, goal, large, group, by_deletes=True)] if state.delete_files else []
    bounds = _tier_bounds(goal)
    for tier, bound in enumerate(bounds):
        least_bytes = LEAST_FILES * bounds[tier - 1] if tier else 0
        if not state.size_bytes or state.size_bytes >= least_bytes:
            passes.append(RewritePass(bound, LEAST_FILES + tier * (LEAST_FILES - 1), goal, large, group))
    return passes


def has_tiers(policy: RewritePolicy) -> bool:
    """Tell whether files are merged with those of their own size only."""
    return not policy.min_input_files and not policy.min_file_bytes


def small_file_bytes(policy: RewritePolicy, target_bytes: int) -> int:
    """Return below which size a data file is small.

    With tiers half the size aimed at: what is more than one file's worth becomes files of which each has more than
    that, where with Iceberg's three quarters 600 MB would become twice 300 MB for ever.
    """
    wanted = min(policy.target_bytes or target_bytes, _MOST_BYTES)
    return wanted // 2 if has_tiers(policy) else policy.min_file_bytes or int(wanted * _ICEBERGS_SHARE)


def _tier_bounds(target_bytes: int) -> list[int]:
    """Return below which sizes the files of each tier are, the smallest first."""
    bounds = [target_bytes // 2]
    while bounds[0] // RATIO >= _LEAST_BYTES:
        bounds.insert(0, bounds[0] // RATIO)
    return bounds
