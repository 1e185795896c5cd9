"""pairs of runs -> growth: what the large one costs beside the small one, and its memory. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from benchmarks.figures import Run
from benchmarks.scale.plan import Growth, Load
from benchmarks.verdicts import MB, Verdict

TABLES_MB, MEMORY_RATIO = 4_096, 1.3
MOST_TABLES, MOST_FILES = "scale-tables", "scale-files"


@attrs.frozen
class Pair:
    """A growth and its two runs."""

    growth: Growth
    small: Run
    large: Run

    @property
    def is_right(self) -> bool:
        """Whether both runs ended, with the tables they must have."""
        return all(run.fault is None and run.correct is True for run in (self.small, self.large))

    @property
    def ratio(self) -> float | None:
        """Warm CPU seconds of the large run per unit, over those of the small one."""
        costs = [_cost(run, load.amounts[self.growth.unit]) for run, load in self._sides()]
        return costs[1] / costs[0] if costs[0] and costs[1] else None

    @property
    def memory_ratio(self) -> float | None:
        """Memory of the whole tree, large over small."""
        return self.large.tree_bytes / self.small.tree_bytes if self.small.tree_bytes else None

    def as_json(self) -> dict[str, Any]:
        """Both runs and what they say about growth."""
        growth = attrs.asdict(self.growth) | {"ratio": self.ratio, "memory_ratio": self.memory_ratio}
        return growth | {"small_run": self.small.as_json(), "large_run": self.large.as_json()}

    def _sides(self) -> tuple[tuple[Run, Load], tuple[Run, Load]]:
        return (self.small, self.growth.small), (self.large, self.growth.large)


def scale_verdicts(pairs: Sequence[Pair]) -> list[Verdict]:
    """A verdict per pair, and those of memory; wrong tables reach none."""
    right = [pair for pair in pairs if pair.is_right]
    found = [
        Verdict(
            f"{pair.growth.name}, CPU per {pair.growth.unit}, large / small",
            pair.ratio,
            pair.growth.limit,
            "at most",
            "x",
        )
        for pair in right
    ]
    for pair in right:
        if pair.growth.name == MOST_TABLES:
            memory = pair.large.tree_bytes / MB
            found.append(
                Verdict(f"memory with {pair.growth.large.tables:,} tables", memory, TABLES_MB, "at most", "MB")
            )
        if pair.growth.name == MOST_FILES:
            found.append(Verdict("memory, large table / small", pair.memory_ratio, MEMORY_RATIO, "at most", "x"))
    return found


def _cost(run: Run, amount: int) -> float | None:
    """Warm CPU seconds, the broker's included, per unit of what the topic holds."""
    return run.warm.cpu_s_per_million * run.events / 1e6 / amount if run.warm else None
