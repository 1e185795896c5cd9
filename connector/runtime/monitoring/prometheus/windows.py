"""Batches with their times -> averages, maxima and rates over the last minute, as Kafka's own metrics have them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import attrs

WINDOW_S = 60.0


@attrs.frozen
class Moment:
    """What happened at a time: how long it took, how many records and bytes went through, and came over the network.

    `behind_ms` is how old the newest event was then; None where that is not known.
    """

    at: float
    seconds: float = 0.0
    records: int = 0
    size_bytes: int = 0
    commit_seconds: float = 0.0
    fetched_bytes: int = 0
    behind_ms: float | None = None


class Window:
    """The moments of the last minute; older ones are forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin empty; `clock` tells seconds."""
        self._clock, self._moments = clock, deque[Moment]()

    def add(
        self,
        *,
        seconds: float = 0.0,
        records: int = 0,
        size_bytes: int = 0,
        commit_seconds: float = 0.0,
        fetched_bytes: int = 0,
        behind_ms: float | None = None,
    ) -> None:
        """Note something that ended now."""
        moment = Moment(self._clock(), seconds, records, size_bytes, commit_seconds, fetched_bytes, behind_ms)
        self._moments.append(moment)
        self.recent()

    def recent(self) -> list[Moment]:
        """Return what is not older than a minute, oldest first."""
        limit = self._clock() - WINDOW_S
        while self._moments and self._moments[0].at < limit:
            self._moments.popleft()
        return list(self._moments)

    def rate(self, of: Callable[[Moment], float]) -> float:
        """Return the sum of something per second."""
        return sum(map(of, self.recent())) / WINDOW_S

    def average(self, of: Callable[[Moment], float]) -> float:
        """Return the mean of something; NaN, as Kafka has it, where nothing happened."""
        values = list(map(of, self.recent()))
        return sum(values) / len(values) if values else float("nan")

    def maximum(self, of: Callable[[Moment], float]) -> float:
        """Return the greatest value of something; NaN where nothing happened."""
        return max(map(of, self.recent()), default=float("nan"))

    def behind(self) -> dict[str, float]:
        """Return how far behind the last minute was, by the names of Debezium's statistics; -1 where nobody knows."""
        known = sorted(one.behind_ms for one in self.recent() if one.behind_ms is not None)
        mean = sum(known) / len(known) if known else -1.0
        shares = {"MinValue": 0.0, "MaxValue": 1.0, "P50": 0.5, "P95": 0.95, "P99": 0.99}
        quantiles = {name: quantile(known, share) for name, share in shares.items()}
        return {f"MilliSecondsBehindSource{name}": value for name, value in {**quantiles, "AverageValue": mean}.items()}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the least value that this share of all is not above; -1 where there is none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else -1.0
