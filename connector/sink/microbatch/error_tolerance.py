"""Counts of dead records -> the sink continues, or stops rather than empty a topic into dead letters (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from connector.errors import FatalError
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings import ErrorSettings
from connector.sink.model.plan import DeadLetterRef

MIN_DEAD_FOR_RATIO = 100
"""A ratio says something only above so many dead records in a batch."""


class ErrorTolerance:
    """Counts dead records over a run; the rules are `errors.tolerance` and `errors.deadletterqueue.limit.*`."""

    def __init__(self, settings: ErrorSettings) -> None:
        """Start with none."""
        self._settings = settings
        self._total = 0

    @property
    def remaining(self) -> int:
        """How many more records may be dead before the total is reached."""
        return max(0, self._settings.max_total - self._total) if self._settings.tolerance == "all" else 0

    def check(self, letters: Sequence[DeadLetterRef], metrics: TaskMetrics) -> None:
        """Refuse a batch with too many dead records; nothing of it has been committed then.

        Raises:
            FatalError: which limit, what it is, and what to do.
        """
        if not metrics.dead:
            return
        if self._settings.tolerance == "none":
            raise FatalError(
                f"{metrics.dead} records of a batch cannot be used, and errors.tolerance is none"
                f"{_describe_first(letters)}; {_REMEDY}"
            )
        if metrics.dead > self.remaining or len(letters) < metrics.dead:
            raise FatalError(
                f"{self._total + metrics.dead} dead letters in this run: more than errors.deadletterqueue.limit.total, "
                f"which is {self._settings.max_total}; {_REMEDY}"
            )
        if metrics.dead > MIN_DEAD_FOR_RATIO and metrics.dead > self._settings.max_ratio * metrics.events:
            raise FatalError(
                f"{metrics.dead} of {metrics.events} records of a batch are dead letters: more than "
                f"errors.deadletterqueue.limit.ratio, which is {self._settings.max_ratio}; {_REMEDY}"
            )

    def record(self, dead: int) -> None:
        """Count the dead records of a batch that is through; one that is tried again counts once."""
        self._total += dead


def _describe_first(letters: Sequence[DeadLetterRef]) -> str:
    return "".join(f"; {x.topic}-{x.partition} offset {x.offset}: {x.reason}" for x in letters[:1])


_REMEDY = "nothing of the batch was committed; look at the reasons in the log and the topic, or raise the limit"
