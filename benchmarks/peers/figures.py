"""runs -> summaries: the median of each contender's rounds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import attrs

from benchmarks.figures import Run
from benchmarks.peers.plan import LEAST_BATCHES, without_round
from benchmarks.plan import Contender


@attrs.frozen
class Summary:
    """A contender on a topic: medians of its rounds, each figure by itself; None where no round has it.

    Warm figures leave out everything until the first commit, and need a few more. CPU is that of the contender's
    processes.
    """

    name: str
    contender: Contender
    rounds: int
    events: int
    wall_s: float
    cpu_s: float
    first_commit_s: float | None
    warm_events_per_s: float | None
    warm_cpu_s_per_million: float | None
    warm_broker_s_per_million: float | None
    memory_bytes: float
    data_files: float | None
    delete_files: float | None
    faults: tuple[str, ...]

    @property
    def events_per_s(self) -> float:
        """Events per second of the whole process, from its start to its end."""
        return self.events / self.wall_s

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds per million events, start and end included."""
        return self.cpu_s / self.events * 1e6 if self.events else float("nan")

    def as_json(self) -> dict[str, Any]:
        """Everything, the derived figures too."""
        derived = {name: getattr(self, name) for name in ("events_per_s", "cpu_s_per_million")}
        return attrs.asdict(self) | derived


def summaries_of(runs: Sequence[Run]) -> list[Summary]:
    """One summary for each case, in the order of the runs."""
    by_case: dict[str, list[Run]] = {}
    for run in runs:
        by_case.setdefault(without_round(run.case.name), []).append(run)
    return [_summary(name, rounds) for name, rounds in by_case.items()]


def _summary(name: str, rounds: Sequence[Run]) -> Summary:
    return Summary(
        name=name,
        contender=rounds[0].case.contender,
        rounds=len(rounds),
        events=max(run.events for run in rounds),
        wall_s=median(run.total_s for run in rounds),
        cpu_s=median(run.total_cpu_s for run in rounds),
        first_commit_s=_median(run.start_to_first_commit_s for run in rounds),
        warm_events_per_s=_warm(rounds, lambda warm: warm.events_per_s),
        warm_cpu_s_per_million=_warm(rounds, lambda warm: warm.tree_cpu_s / warm.events * 1e6),
        warm_broker_s_per_million=_warm(rounds, lambda warm: warm.broker_cpu_s / warm.events * 1e6),
        memory_bytes=median(run.tree_bytes for run in rounds),
        data_files=_median(run.files.get("data_files") for run in rounds),
        delete_files=_median(run.files.get("delete_files") for run in rounds),
        faults=tuple(run.fault for run in rounds if run.fault),
    )


def _warm(rounds: Iterable[Run], figure: Callable[[Any], float]) -> float | None:
    return _median(figure(run.warm) if run.warm and len(run.batches) >= LEAST_BATCHES else None for run in rounds)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
