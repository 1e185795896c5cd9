"""A limit for several answers together -> how long the next one may still take."""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import frozen


@frozen
class Deadline:
    """A point in time of a clock that never goes back (seconds)."""

    limit_s: float
    ends_s: float
    clock: Callable[[], float]

    @classmethod
    def after(cls, limit_s: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Return the one that is so far away."""
        return cls(limit_s, clock() + limit_s, clock)

    def remaining_s(self) -> float:
        """Return what is left until then, 0 when it has passed."""
        return max(0.0, self.ends_s - self.clock())
