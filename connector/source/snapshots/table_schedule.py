"""What became of a table's step -> when its next one is due, if ever (pure)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from connector.errors import ConnectorError, RetriableError
from connector.runtime.retry import double_wait_s

_FIRST_WAIT_S = 0.2


@attrs.frozen
class TableSchedule:
    """When a table is due: not before `at` (seconds of a monotonic clock), and never again once `failed` is set."""

    at: float = 0.0
    tries: int = 0
    since: float | None = None
    failed: ConnectorError | None = None

    def is_due(self, now: float) -> bool:
        """Whether the table is due."""
        return self.failed is None and now >= self.at

    @property
    def waiting(self) -> bool:
        """Whether a step is to be tried again."""
        return self.failed is None and self.tries > 0


def after_success(at: float = 0.0) -> TableSchedule:
    """Return the schedule after a step that succeeded: due at once, or where there was nothing to do, not before."""
    return TableSchedule(at)


def after_failure(
    schedule: TableSchedule, error: ConnectorError, now: float, *, timeout_s: float | None, longest_s: float
) -> TableSchedule:
    """Return the schedule after a step that failed: later where a retry may help, else never.

    Args:
        schedule: the schedule until then.
        error: why.
        now: the time of the clock.
        timeout_s: how long to continue trying, None without end.
        longest_s: the longest wait between two tries.
    """
    since = now if schedule.since is None else schedule.since
    over = timeout_s is not None and now - since >= timeout_s
    if not isinstance(error, RetriableError) or over:
        return attrs.evolve(schedule, failed=error, since=since)
    return TableSchedule(now + double_wait_s(_FIRST_WAIT_S, schedule.tries, longest_s), schedule.tries + 1, since)


def wait_for_due(schedules: Iterable[TableSchedule], now: float, longest_s: float) -> float:
    """Return how many seconds to wait for the first table that is due later, at most the longest.

    Those that are due at any time are not waited for.
    """
    waits = (schedule.at - now for schedule in schedules if schedule.failed is None and schedule.at)
    return max(0.0, min([longest_s, *waits]))
