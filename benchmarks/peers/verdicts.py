"""summaries -> verdicts: whether anyone who measures would pick something else. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.figures import Summary
from benchmarks.verdicts import EMPTY_RATIO, Verdict

CPU_S_PER_MILLION = {"append": 2.5, "upsert": 6.0}
CPU_OF_FLINK, CLOCK_OF_FLINK = 0.5, 2.0
WHOLE_FROM = 1_000_000
"""Events from which the whole process is to be ahead of Flink's."""


def peer_verdicts(summaries: Sequence[Summary]) -> list[Verdict]:
    """One verdict per target; figures of a contender that failed or left a wrong table do not count."""
    good = {one.name: one for one in summaries if not one.faults}
    judged = [verdict for kind in CPU_S_PER_MILLION for verdict in _beside_flink(kind, good)]
    judged.append(_clock("upsert", "merge-mor", EMPTY_RATIO, good))
    right = sum(one.rounds - len(one.faults) for one in summaries)
    rounds = sum(one.rounds for one in summaries)
    judged.append(Verdict("tables equal to their reference", float(right) if rounds else None, rounds, "at least"))
    return judged


def _beside_flink(kind: str, good: dict[str, Summary]) -> list[Verdict]:
    ours, flink = good.get(f"{kind}-ours"), good.get(f"{kind}-flink")
    cpu = ours.warm_cpu_s_per_million if ours else None
    whole = ours is not None and flink is not None and ours.events >= WHOLE_FROM
    return [
        Verdict(f"{kind} CPU per million, start left out", cpu, CPU_S_PER_MILLION[kind], "at most", "s"),
        Verdict(
            f"{kind} CPU / Flink's, start left out",
            _over(cpu, flink.warm_cpu_s_per_million if flink else None),
            CPU_OF_FLINK,
            "at most",
            "x",
        ),
        _clock(kind, "flink", CLOCK_OF_FLINK, good),
        Verdict(
            f"{kind} events/s / Flink's, whole process",
            _over(ours.events_per_s, flink.events_per_s) if whole and ours and flink else None,
            1.0,
            "at least",
            "x",
        ),
    ]


def _clock(kind: str, other: str, limit: float, good: dict[str, Summary]) -> Verdict:
    ours, beside = good.get(f"{kind}-ours"), good.get(f"{kind}-{other}")
    ratio = _over(ours.warm_events_per_s, beside.warm_events_per_s) if ours and beside else None
    return Verdict(f"{kind} events/s / {other}, start left out", ratio, limit, "at least", "x")


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
