"""factor -> pairs of runs: produce, prefill, run both sides of each pair, check their tables."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow.parquet as pq

from benchmarks.case_run import Say, measured
from benchmarks.contenders import Place, step
from benchmarks.figures import Run
from benchmarks.generate import final_rows
from benchmarks.plan import Case
from benchmarks.reference import Pair as Checked
from benchmarks.reference import consumed_of, faults_of, with_check
from benchmarks.scale.figures import Pair
from benchmarks.scale.load import scale_events, scale_messages
from benchmarks.scale.plan import FILE_ROWS, PARTITION_VALUES, TOUCHED, Growth, Load, chosen_growths
from benchmarks.scale.prefill import NEWER
from benchmarks.topics import fill


def measure_scale(place: Place, factor: float, only: Sequence[str], say: Say) -> tuple[Pair, ...]:
    """All pairs that are wanted; a run that fails is told in its fault and does not stop the others."""
    wanted = chosen_growths(factor, only)
    _prefill(place, wanted, say)
    ends = [tuple(_measured(place, case, load, say) for case, load in growth.cases()) for growth in wanted]
    checks = [check for sides in ends for _, check in sides]
    faults = faults_of(checks, place) if checks else {}
    return tuple(
        Pair(growth, *(with_check(done, faults) for done, _ in sides))
        for growth, sides in zip(wanted, ends, strict=True)
    )


def _prefill(place: Place, wanted: Sequence[Growth], say: Say) -> None:
    sides = [side for growth in wanted for side in growth.cases()]
    tables = {case.table: load.files for case, load in sides if load.files}
    if not tables:
        return
    say(f"tables of {', '.join(f'{files * FILE_ROWS:,}' for files in tables.values())} rows ...")
    job = place.work / "scale-prefill.json"
    job.write_text(json.dumps({"warehouse": str(place.warehouse), "tables": tables}))
    step("benchmarks.scale.prefill", job, place.work / "scale-prefill.log")


def _measured(place: Place, case: Case, load: Load, say: Say) -> tuple[Run, Checked]:
    """The run of a case, and what its tables must hold."""
    events = scale_events(load, case.topic)
    fill(place.bootstrap, case.full_topic, scale_messages(events, load), load.partitions)
    done = measured(case, place, say)
    rows = final_rows(events, consumed_of(events, None))
    file = place.work / "reference" / f"{case.name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    checked: Checked = {"name": case.name, "tables": case.tables, "reference": str(file)}
    if load.files:
        generations = -(-load.files // PARTITION_VALUES)
        there = len({key for key in events.ids.tolist() if key < generations * FILE_ROWS})
        touched = sum(number % PARTITION_VALUES < TOUCHED for number in range(load.files))
        rows_left = touched * FILE_ROWS - there + len(rows)
        checked |= {"where": NEWER, "among": f"p < {TOUCHED}", "rows": rows_left}
    return done, checked
