"""events + offsets -> Parquet: write what each final table must hold, for `check.py` to compare."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import attrs
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.contenders import Place, step
from benchmarks.figures import Run
from benchmarks.generate import Events, appended_rows, final_rows, prefilled_rows
from benchmarks.messages import keys_of
from benchmarks.partition import offsets_within, partitions_of
from benchmarks.plan import UPSERT
from benchmarks.topics import PARTITIONS


class Pair(TypedDict):
    """What is compared: the tables of a case, all their rows together, and the file with what they must hold.

    Of a table that is too large for a file: the condition that the file's rows meet, and a number of rows among some.
    """

    name: str
    tables: Sequence[str]
    reference: str
    where: NotRequired[str]
    among: NotRequired[str]
    rows: NotRequired[int]


def consumed_of(events: Events, offsets: Mapping[str, int] | None) -> NDArray[np.bool_]:
    """Which events lie below the end offsets of their partitions; all of them when no offsets are given."""
    if offsets is None:
        return np.ones(len(events), np.bool_)
    partition = partitions_of(keys_of(events.ids), PARTITIONS)
    ends = np.array([offsets.get(str(number), 0) for number in range(PARTITIONS)])
    below: NDArray[np.bool_] = offsets_within(partition, PARTITIONS) < ends[partition]
    return below


def write_reference(run: Run, events: Events, rows: int, folder: Path) -> Pair:
    """Write the reference of a run's table; returns the pair to check."""
    consumed = consumed_of(events, run.offsets)
    before = prefilled(rows) if run.case.prefilled else None
    expected: Any = final_rows(events, consumed, before) if run.case.upsert else appended_rows(events, consumed)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{run.case.name}.parquet"
    pq.write_table(expected.drop_columns(list(run.case.lacks)), file)
    return {"name": run.case.name, "tables": run.case.tables, "reference": str(file)}


@functools.lru_cache(maxsize=1)
def prefilled(rows: int) -> Any:
    """The rows of the big table."""
    return prefilled_rows(rows, UPSERT)


def faults_of(pairs: Sequence[Pair], place: Place) -> dict[str, str | None]:
    """What the check says about the tables of each case, by its name: None when they equal their reference."""
    job, result = place.work / "check.json", place.work / "check-result.json"
    job.write_text(json.dumps({"warehouse": str(place.warehouse), "pairs": list(pairs), "result": str(result)}))
    step("benchmarks.check", job, place.work / "check.log")
    faults: dict[str, str | None] = json.loads(result.read_text())
    return faults


def with_check(run: Run, faults: Mapping[str, str | None]) -> Run:
    """The run with the check's word about its table."""
    fault = faults[run.case.name]
    return attrs.evolve(run, correct=fault is None, fault=run.fault or fault)
