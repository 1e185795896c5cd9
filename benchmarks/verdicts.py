"""figures -> verdicts: each target of the issue, reached or missed, and by how much. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from benchmarks.figures import Run
from benchmarks.latency import Latency

APPEND_RATIO, EMPTY_RATIO, FULL_RATIO, MANY_RATIO, POSITIONS_RATIO, WATERMARKS = 1.8, 4.0, 8.0, 0.8, 6.0, 1.05
POSITIONS_CPU = 1.3
APPEND_CPU_S, UPSERT_CPU_S, FULL_TO_EMPTY, FIRST_TO_WARM = 2.5, 6.0, 1.2, 2.0
HEAP_MB, WORKER_MB, P50_MS, P95_MS, FIRST_COMMIT_S = 2_048, 600, 500, 1_000, 8
MB = 1024 * 1024
LARGE_BATCH = 999_000  # the last batch of 1,000,000 lacks the few events that the first had more


@attrs.frozen
class Verdict:
    """A target: what was found, the limit, and which side of it is right."""

    name: str
    found: float | None
    limit: float
    side: Literal["at least", "at most"]
    unit: str = ""

    @property
    def reached(self) -> bool | None:
        """None when it was not measured."""
        if self.found is None:
            return None
        return self.found >= self.limit if self.side == "at least" else self.found <= self.limit

    @property
    def ratio(self) -> float | None:
        """Found over limit for "at least", limit over found for "at most": 1 or more is reached."""
        if not self.found:
            return None
        return self.found / self.limit if self.side == "at least" else self.limit / self.found

    def as_json(self) -> dict[str, Any]:
        """What a file of results says of it."""
        return attrs.asdict(self) | {"reached": self.reached, "ratio": self.ratio}


def verdicts(runs: Mapping[str, Run], latency: Latency | None) -> list[Verdict]:
    """One verdict per target; figures of a run whose table is wrong or that failed do not count."""
    good = {name: run for name, run in runs.items() if run.fault is None and run.correct is not False}
    return [*_speed(good), *_memory(good), *_time(good, latency), _correct(runs, latency)]


def _speed(runs: Mapping[str, Run]) -> list[Verdict]:
    append, empty = runs.get("append-ours"), runs.get("upsert-empty-ours")
    forgetful, undated = (runs.get(f"upsert-empty-{name}-ours") for name in ("forgetful", "undated"))
    by_positions, by_keys = runs.get("upsert-full-positions-ours"), runs.get("upsert-full-ours")
    positions = _over(rate(by_positions), rate(runs.get("upsert-full-merge-mor")))
    positions_cpu = _over(_cpu(by_positions), _cpu(by_keys))
    full_to_empty = _over(batch_s(by_keys), batch_s(empty))
    return [
        Verdict("append / from_json + append", _times(runs, "append", "from-json"), APPEND_RATIO, "at least", "x"),
        Verdict("append CPU per million", _own_cpu(append), APPEND_CPU_S, "at most", "s"),
        Verdict("upsert CPU per million", _own_cpu(runs.get("upsert-large-ours")), UPSERT_CPU_S, "at most", "s"),
        Verdict(
            "upsert, empty / MERGE merge-on-read",
            _times(runs, "upsert-empty", "merge-mor"),
            EMPTY_RATIO,
            "at least",
            "x",
        ),
        Verdict(
            "upsert, full / MERGE merge-on-read", _times(runs, "upsert-full", "merge-mor"), FULL_RATIO, "at least", "x"
        ),
        Verdict("upsert by position deletes, full / MERGE merge-on-read", positions, POSITIONS_RATIO, "at least", "x"),
        Verdict("CPU of position deletes / of equality deletes, full", positions_cpu, POSITIONS_CPU, "at most", "x"),
        Verdict("upsert batch time, full / empty", full_to_empty, FULL_TO_EMPTY, "at most", "x"),
        Verdict("CPU with watermarks / without", _over(_cpu(forgetful), _cpu(undated)), WATERMARKS, "at most", "x"),
        Verdict("200 tables / one table", _times(runs, "tables", "one"), MANY_RATIO, "at least", "x"),
    ]


def _cpu(run: Run | None) -> float | None:
    return run.warm.cpu_s_per_million if run and run.warm else None


def _own_cpu(run: Run | None) -> float | None:
    return run.warm.tree_cpu_s / run.warm.events * 1e6 if run and run.warm else None


def _memory(runs: Mapping[str, Run]) -> list[Verdict]:
    ours = [run for run in runs.values() if run.case.contender == "ours"]
    large = [run for run in ours if max((batch.events for batch in run.batches), default=0) >= LARGE_BATCH]
    # A run that ended with a right table in a JVM of 2 GiB heap is the proof; the limit is its -Xmx.
    heap = float(HEAP_MB) if large and all(run.warm for run in large) else None
    worker = max((run.worker_bytes / MB for run in ours), default=None)
    return [
        Verdict("heap that batches of 1,000,000 events ran in", heap, HEAP_MB, "at most", "MB"),
        Verdict("largest Python worker", worker, WORKER_MB, "at most", "MB"),
    ]


def _time(runs: Mapping[str, Run], latency: Latency | None) -> list[Verdict]:
    return [
        Verdict("produced to visible, p50", latency.p50_ms if latency else None, P50_MS, "at most", "ms"),
        Verdict("produced to visible, p95", latency.p95_ms if latency else None, P95_MS, "at most", "ms"),
        Verdict(
            "start to first commit",
            latency.start_to_first_commit_s if latency else None,
            FIRST_COMMIT_S,
            "at most",
            "s",
        ),
        *(
            Verdict(
                f"first batch / warm batch, {name}",
                first_to_warm(runs.get(f"{name}-ours")),
                FIRST_TO_WARM,
                "at most",
                "x",
            )
            for name in ("append", "upsert-empty", "upsert-full")
        ),
    ]


def _correct(runs: Mapping[str, Run], latency: Latency | None) -> Verdict:
    right = [run.correct is True for run in runs.values()]
    if latency is not None:
        right.append(latency.fault is None)
    return Verdict("tables equal to their reference", float(sum(right)) if right else None, len(right), "at least")


def first_to_warm(run: Run | None) -> float | None:
    """Seconds of the first batch over the mean of the later ones, both as the sink says them."""
    if run is None or run.warm is None:
        return None
    warm = [batch.seconds for batch in run.batches[1:]]
    return run.batches[0].seconds / (sum(warm) / len(warm))


def rate(run: Run | None) -> float | None:
    """Warm events per second."""
    return run.warm.events_per_s if run and run.warm else None


def batch_s(run: Run | None) -> float | None:
    """Warm seconds per batch."""
    return run.warm.seconds_per_batch if run and run.warm else None


def _times(runs: Mapping[str, Run], kind: str, other: str) -> float | None:
    return _over(rate(runs.get(f"{kind}-ours")), rate(runs.get(f"{kind}-{other}")))


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
