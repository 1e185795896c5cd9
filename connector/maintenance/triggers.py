"""Policy + state of a table -> which tasks are due, and why. Pure: nothing is scanned where nothing is to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connector.maintenance.size_tiers import LEAST_FILES
from connector.maintenance.table_state import Progress, TableState
from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, ORPHANS, REWRITE
from connector.settings.iceberg.maintenance.policies import MaintenancePolicy

_S = 1000
_EXPIRY_PAUSE_S = 600
_IDLE_S = 3600


def find_due_tasks(
    policy: MaintenancePolicy,
    state: TableState,
    now_ms: int,
    done_ms: Mapping[str, int] | None = None,
    fruitless: Mapping[str, int] | None = None,
    done_number: int | None = None,
    *,
    has_more: bool = False,
) -> dict[str, str]:
    """Return the tasks that are due with the reason, in the order in which they are done.

    Args:
        policy: the table's.
        state: as its snapshots tell it.
        now_ms: the time.
        done_ms: when this process did tasks, or found nothing to do; or when they were done last at the latest, as
            snapshots told that have expired since.
        fruitless: the newest snapshot at which a task found nothing to do: there it finds nothing again.
        done_number: the sequence number up to which manifests were merged, as snapshots told that may have expired.
        has_more: whether the last rewrite merged files: at most so much at once, so that it may have left some.
    """
    vain = {task for task, snapshot_id in (fruitless or {}).items() if snapshot_id == state.newest_id}
    due = _iter_due(policy, state, now_ms, done_ms or {}, done_number, has_more=has_more)
    return {task: why for task, why in due if task not in vain}


def idle_interval_s(policy: MaintenancePolicy) -> int:
    """Return how many seconds a table may be left alone to which nothing was written: no task is due by time sooner."""
    waits = (
        (policy.convert.enabled, policy.convert.interval_s),
        (policy.rewrite.enabled, policy.rewrite.interval_s),
        (policy.expire.enabled, policy.expire.interval_s),
        (policy.orphans.enabled, policy.orphans.interval_s),
    )
    return max(policy.rate_limit_s, min((wait_s for enabled, wait_s in waits if enabled), default=_IDLE_S))


def _iter_due(
    policy: MaintenancePolicy,
    state: TableState,
    now_ms: int,
    done_ms: Mapping[str, int],
    done_number: int | None,
    *,
    has_more: bool,
) -> Iterator[tuple[str, str]]:
    reasons = {
        CONVERT: _convert_reason(policy, state, now_ms, done_ms.get(CONVERT, 0)),
        REWRITE: _rewrite_reason(policy, state, now_ms, done_ms.get(REWRITE, 0), has_more=has_more),
        MANIFESTS: _manifest_reason(policy, state, done_ms.get(MANIFESTS, 0), done_number),
        EXPIRE: _expire_reason(policy, state, now_ms, done_ms.get(EXPIRE, 0)),
        ORPHANS: _orphan_reason(policy, now_ms, done_ms.get(ORPHANS, 0)),
    }
    for task, reason in reasons.items():
        if reason is not None:
            yield task, reason


def _convert_reason(policy: MaintenancePolicy, state: TableState, now_ms: int, done_ms: int) -> str | None:
    rule, since = policy.convert, state.since(CONVERT)
    if not rule.enabled or not state.equality_deletes:
        return None
    if since.equality_delete_files >= rule.files:
        return f"{since.equality_delete_files} equality delete files since the last conversion"
    if state.equality_deletes >= rule.records:
        return f"{state.equality_deletes} equality deletes"
    if _measure_wait_s(since, state, now_ms, done_ms) >= rule.interval_s:
        return f"equality deletes for {_measure_wait_s(since, state, now_ms, done_ms)} s"
    return None


def _rewrite_reason(
    policy: MaintenancePolicy, state: TableState, now_ms: int, done_ms: int, *, has_more: bool
) -> str | None:
    rule, since = policy.rewrite, state.since(REWRITE)
    few = state.data_files < min(rule.min_input_files or LEAST_FILES, rule.files)
    # One file is enough where most of its rows may be deleted.
    if not rule.enabled or not (since.commits or has_more) or (few and not state.delete_files):
        return None
    if since.data_files >= rule.files:
        return f"{since.data_files} data files since the last rewrite"
    if rule.added_bytes and since.size_bytes >= rule.added_bytes:
        return f"{since.size_bytes} bytes since the last rewrite"
    if rule.commits and since.commits >= rule.commits:
        return f"{since.commits} commits since the last rewrite"
    if _measure_wait_s(since, state, now_ms, done_ms) >= rule.interval_s:
        return f"{since.commits} commits in {_measure_wait_s(since, state, now_ms, done_ms)} s"
    return None


def _manifest_reason(policy: MaintenancePolicy, state: TableState, done_ms: int, done_number: int | None) -> str | None:
    """Commits make manifests, which Iceberg merges by itself where it may; how many are small is looked at then."""
    rule, since = policy.manifests, state.since(MANIFESTS)
    commits, (_, newest) = since.commits, since.numbers
    if since.since_ms is None and done_number is not None:
        # More may have come than snapshots are kept: those of maintenance are counted too then.
        commits = max(commits, newest - done_number)
    if rule.enabled and commits >= rule.count and state.newest_ms > done_ms:
        return f"{commits} commits since the last time"
    return None


def _expire_reason(policy: MaintenancePolicy, state: TableState, now_ms: int, done_ms: int) -> str | None:
    rule = policy.expire
    if not rule.enabled or state.snapshots <= max(1, rule.retain_last):
        return None
    # Which of them may go is looked up then: not each time where a source holds them all.
    waited_s = (now_ms - done_ms) // _S
    many = state.snapshots >= rule.retain_last + rule.commits
    if waited_s >= rule.interval_s or (many and waited_s >= min(_EXPIRY_PAUSE_S, rule.interval_s)):
        return f"{state.snapshots} snapshots"
    return None


def _orphan_reason(policy: MaintenancePolicy, now_ms: int, done_ms: int) -> str | None:
    rule = policy.orphans
    if rule.enabled and now_ms - done_ms >= rule.interval_s * _S:
        return f"not looked for in the last {rule.interval_s} s"
    return None


def _measure_wait_s(since: Progress, state: TableState, now_ms: int, done_ms: int) -> int:
    """Return how long ago a task was done; where no snapshot is left that tells, since it was as this process knows, or
    else as long as there are snapshots.
    """
    last = (done_ms or state.oldest_ms) if since.since_ms is None else max(done_ms, since.since_ms)
    return max(0, now_ms - last) // _S
