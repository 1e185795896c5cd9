"""pairs of loads -> events and verdicts: the benchmark of what grows, without a broker or a JVM."""

from __future__ import annotations

import json

import attrs
import pytest

from benchmarks.contenders import Finished, Line
from benchmarks.figures import Run, run_of
from benchmarks.measure import Memory, Sample, Usage
from benchmarks.scale.figures import Pair, scale_verdicts
from benchmarks.scale.load import scale_events, scale_messages
from benchmarks.scale.plan import BATCHES, Growth, Load, chosen_growths, growths

LOAD = Load(events=300, keys=40, columns=5, text_bytes=30, tables=3)


def messages_of(load: Load) -> list[tuple[dict[str, int], dict[str, object]]]:
    """All messages of a load, parsed."""
    chunks = scale_messages(scale_events(load, "t"), load)
    return [(json.loads(key), json.loads(value)) for chunk in chunks for key, value in chunk]


def test_messages_are_the_rows_of_the_reference() -> None:
    """Each envelope has the values of its event's row, a delete has none, and a key is always of the same table."""
    rows = scale_events(LOAD, "t").rows.to_pylist()
    tables: dict[int, str] = {}
    for (key, envelope), row in zip(messages_of(LOAD), rows, strict=True):
        op, after, source = row.pop("__op"), envelope["after"], envelope["source"]
        assert key == {"id": row["id"], "p": row["p"]}
        assert envelope["op"] == op
        assert after == (None if op == "d" else row)
        assert isinstance(source, dict)
        assert tables.setdefault(row["id"], source["table"]) == source["table"]
    assert len(set(tables.values())) == LOAD.tables


@pytest.mark.parametrize("growth", growths(1.0), ids=lambda growth: growth.name)
def test_pair_differs_in_one_thing(growth: Growth) -> None:
    """Both sides of a pair hold as much of what their cost is divided by, in as many batches."""
    small, large = (load.amounts[growth.unit] for load in (growth.small, growth.large))
    assert small == pytest.approx(large, rel=0.01)
    assert [case.batch_events * BATCHES for case, _ in growth.cases()] == [growth.small.events, growth.large.events]


def test_names_choose_pairs() -> None:
    """`--only scale` means all pairs, the name of one means that one, other names none."""
    assert len(chosen_growths(0.02, ["scale"])) == len(growths(0.02))
    assert [growth.name for growth in chosen_growths(0.02, ["scale-files"])] == ["scale-files"]
    assert not chosen_growths(0.02, ["append"])


def finished(cpu_s: float) -> Finished:
    """Four batches of 100 events, one a second, of which each takes so many CPU seconds."""
    lines = [
        Line(float(at), {"event": "batch committed", "batch": at, "events": 100, "seconds": 1.0}) for at in range(1, 5)
    ]
    samples = tuple(Sample(float(at), at * cpu_s, 0.0, 0.0) for at in range(6))
    return Finished(0.0, 0, tuple(lines), Usage(samples, Memory(1, 1, 1, 1_000)), "")


def pair_of(growth: Growth, small_s: float, large_s: float, correct: bool = True) -> Pair:
    """A pair whose runs took so many CPU seconds a batch."""
    runs: list[Run] = []
    for (case, _), cpu_s in zip(growth.cases(), (small_s, large_s), strict=True):
        runs.append(attrs.evolve(run_of(case, finished(cpu_s)), correct=correct))
    return Pair(growth, runs[0], runs[1])


def test_cost_is_compared_by_unit() -> None:
    """A large run that takes twice the CPU for twice the cells costs as much; a wrong table has no verdict."""
    growth = Growth("scale-columns", Load(400, 10, columns=4), Load(400, 10, columns=8), "cells", 1.5)
    (verdict,) = scale_verdicts([pair_of(growth, 0.5, 1.0)])
    assert verdict.found == pytest.approx(1.0)
    assert verdict.reached
    assert scale_verdicts([pair_of(growth, 0.5, 2.0)])[0].reached is False
    assert not scale_verdicts([pair_of(growth, 0.5, 1.0, correct=False)])
