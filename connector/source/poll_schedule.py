"""When a table has its next turn, and when it is given up: no table holds up the others (pure)."""

from __future__ import annotations

import attrs

from connector.errors import ConnectorError, RetriableError

_FIRST_WAIT_S = 0.2


@attrs.frozen
class TableSchedule:
    """A table's place in the round: not before `at` (seconds of a clock that only grows); `failed` ends its turns."""

    at: float = 0.0
    tries: int = 0
    since: float | None = None
    failed: ConnectorError | None = None

    def is_due(self, now: float) -> bool:
        """Whether the table may have a turn."""
        return self.failed is None and now >= self.at

    @property
    def waiting(self) -> bool:
        """Whether something is to be tried again."""
        return self.failed is None and self.tries > 0


def after_success() -> TableSchedule:
    """Give the turn after one that went well."""
    return TableSchedule()


def after_failure(
    turn: TableSchedule, error: ConnectorError, now: float, *, timeout_s: float | None, longest_s: float
) -> TableSchedule:
    """Give the turn after one that failed: later for what may pass, never for anything else.

    Args:
        turn: the turn that failed.
        error: why.
        now: the clock.
        timeout_s: how long to go on trying, None without end.
        longest_s: the longest wait between two tries.
    """
    since = now if turn.since is None else turn.since
    over = timeout_s is not None and now - since >= timeout_s
    if not isinstance(error, RetriableError) or over:
        return attrs.evolve(turn, failed=error, since=since)
    wait = min(_FIRST_WAIT_S * 2**turn.tries, longest_s)
    return TableSchedule(now + wait, turn.tries + 1, since)
