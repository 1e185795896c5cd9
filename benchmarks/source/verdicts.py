"""figures of the producer -> verdicts: each target of its issue, reached or missed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from benchmarks.source.figures import Changes, Source
from benchmarks.verdicts import Verdict

V2_RATIO, V3_RATIO, LARGER_RATIO = 2.0, 3.0, 1.3
ENVELOPES_PER_S, POLL_MS, POLL_REQUESTS = 120_000, 100, 1


def source_verdicts(source: Source) -> list[Verdict]:
    """One verdict per target; figures of a case with wrong changes do not count."""
    good = {case.name: case for case in source.changes if case.fault is None}
    published = source.publishing
    rate = published.envelopes_per_s if published and published.fault is None else None
    right = [case.fault is None for case in source.changes]
    if published:
        right.append(published.fault is None)
    return [
        Verdict("copy-on-write v2, view / ours", _over_view(good, "source-cow-v2"), V2_RATIO, "at least", "x"),
        Verdict("copy-on-write v3, view / ours", _over_view(good, "source-cow-v3"), V3_RATIO, "at least", "x"),
        *(
            Verdict(
                f"merge-on-read {version}, 4 times the rows / the rows",
                _larger(good, f"source-mor-{version}"),
                LARGER_RATIO,
                "at most",
                "x",
            )
            for version in ("v2", "v3")
        ),
        Verdict("envelopes published per second, initial read", rate, ENVELOPES_PER_S, "at least"),
        *_idle(source),
        Verdict(
            "changes and topics equal to Spark's reads", float(sum(right)) if right else None, len(right), "at least"
        ),
    ]


def _idle(source: Source) -> list[Verdict]:
    idle = source.idle
    jdbc, rest = (median(idle.jdbc_ms), median(idle.rest_ms)) if idle else (None, None)
    return [
        Verdict("idle poll, 10,000 snapshots, JDBC catalog", jdbc, POLL_MS, "at most", "ms"),
        Verdict("idle poll, 10,000 snapshots, REST catalog", rest, POLL_MS, "at most", "ms"),
        Verdict("catalog requests of an idle poll", idle.requests if idle else None, POLL_REQUESTS, "at most"),
    ]


def _over_view(cases: Mapping[str, Changes], name: str) -> float | None:
    case = cases.get(name)
    return case.view.wall_s / case.ours.wall_s if case and case.view and case.ours else None


def _larger(cases: Mapping[str, Changes], name: str) -> float | None:
    small, large = cases.get(name), cases.get(f"{name}-large")
    return large.ours.wall_s / small.ours.wall_s if small and large and small.ours and large.ours else None
