"""How often something failed in a row -> how long to wait before the next try (pure but for chance)."""

from __future__ import annotations

import random

_JITTER = 0.2
_MAX_DOUBLINGS = 16
_LONGEST_S = 30.0
"""So long is waited at most, whatever is asked for: who waits is to see that there is no use in it."""


def pause_s(failures: int, first_s: float, most_s: float) -> float:
    """Return seconds: doubled with each failure up to `most_s`, give or take a fifth: tasks are not to come at once."""
    doubled = first_s * 2 ** min(max(failures - 1, 0), _MAX_DOUBLINGS)
    return min(doubled, most_s, _LONGEST_S) * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - nothing to guess
