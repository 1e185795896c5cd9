"""Events of a batch -> how many tasks write it, and into how many buckets the keys of a table are split (pure)."""

from __future__ import annotations

import math

EVENTS_PER_REDUCER = 50_000
"""Below this many events per task, a further task costs more than it gains."""

EVENTS_PER_BUCKET = 200_000
"""A reduce task holds one bucket in memory at a time."""


def count_reducers(events: int, parallelism: int) -> int:
    """Return how many tasks write a batch of about so many events."""
    return max(1, min(parallelism, math.ceil(events / EVENTS_PER_REDUCER)))


def count_buckets(events: float, reducers: int) -> int:
    """Return into how many parts the keys of a table with about so many events are split.

    A table with few is one task's work, as files cost more than their rows then; tasks share a larger one evenly.
    """
    if events <= EVENTS_PER_REDUCER:
        return 1
    return reducers * max(1, math.ceil(events / (reducers * EVENTS_PER_BUCKET)))
