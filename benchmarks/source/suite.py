"""sizes -> figures of the producer: one process for all changes and idle polls, then the initial read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import attrs

from benchmarks.contenders import Place, step
from benchmarks.source.figures import Publishing, Source, changes_of, idle_of
from benchmarks.source.plan import IDLE, PUBLISH, chosen_source
from benchmarks.source.publish import measure_publishing

_RESULT = "source-result.json"
Say = Callable[[str], None]


def measure_source(place: Place, rows: int, only: Sequence[str], say: Say) -> Source | None:
    """Everything of the producer that is wanted; None when nothing is. What fails is a fault, the rest stands."""
    cases, publishes, idles = chosen_source(only)
    names = [case.name for case in cases]
    if not (names or publishes or idles):
        return None
    say(f"{', '.join([*names, *([IDLE] if idles else [])]) or 'the table to publish'} ...")
    source = measured_changes(place, rows, names, publishes, idles)
    for case in source.changes:
        timings = [f"{who} {one.wall_s:.2f} s" for who, one in (("ours", case.ours), ("view", case.view)) if one]
        say(f"  {case.name}: {', '.join(timings)}{f', failed: {case.fault}' if case.fault else ''}")
    if publishes and (place.work / _RESULT).exists():
        say(f"{PUBLISH} ...")
        source = published(place, rows, source)
    for fault in source.faults:
        say(f"  failed: {fault}")
    return source


def measured_changes(place: Place, rows: int, names: Sequence[str], publishes: bool, idles: bool) -> Source:
    """Run the process that makes the tables and measures changes and idle polls."""
    job, result = place.work / "source.json", place.work / _RESULT
    body = {
        "warehouse": str(place.warehouse),
        "bootstrap": place.bootstrap,
        "rows": rows,
        "cases": list(names),
        "publish": publishes,
        "idle": idles,
        "result": str(result),
    }
    job.write_text(json.dumps(body))
    try:
        step("benchmarks.source.changes", job, place.work / "source.log")
    except RuntimeError as error:
        return Source(faults=(str(error),))
    results = json.loads(result.read_text())
    changes = tuple(changes_of(name, figures) for name, figures in results["changes"].items())
    idle = results["idle"] or {}
    if "fault" in idle:
        return Source(changes, faults=(idle["fault"],), **results["memory"])
    return Source(changes, idle=idle_of(idle), **results["memory"])


def published(place: Place, rows: int, source: Source) -> Source:
    """Add the initial read."""
    try:
        publishing: Publishing = measure_publishing(place, rows)
    except (OSError, RuntimeError, ValueError, LookupError) as error:
        return attrs.evolve(source, faults=(*source.faults, f"{PUBLISH}: {type(error).__name__}: {error}"))
    return attrs.evolve(source, publishing=publishing)
