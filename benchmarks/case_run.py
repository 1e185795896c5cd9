"""case -> run: one contender on one topic, measured, with the files that it left; said as it goes."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from benchmarks.contenders import Place, command, run
from benchmarks.figures import Run, run_of
from benchmarks.plan import Case
from benchmarks.tables import files_written

Say = Callable[[str], None]


def measured(case: Case, place: Place, say: Say, line: Callable[[Case, Place], list[str]] = command) -> Run:
    """Run one case, by the command line that `line` gives it, and say how it went."""
    say(f"{case.name} ...")
    figures = run_of(case, run(line(case, place), place.work / f"{case.name}.log", place.broker_pid))
    if figures.batches:
        figures = attrs.evolve(figures, files=files_written(place.warehouse, case.tables, case.prefilled))
    if figures.warm:
        say(f"  {figures.warm.events_per_s:,.0f} events/s, {figures.warm.seconds_per_batch:.2f} s per batch")
    if figures.fault:
        say(f"  failed, see {place.work / case.name}.log (--keep keeps it)")
    return figures
