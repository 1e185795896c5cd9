"""sizes -> figures of the wire: one process reads topics, one writes envelopes, one compares the sink's readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from benchmarks.contenders import Place, step
from benchmarks.plan import matches
from benchmarks.wire.figures import Wire, wire_lines

READ, WRITTEN, FETCHED = "wire-read", "wire-written", "wire-fetched"
_FIELDS = {READ: "read", WRITTEN: "written", FETCHED: "fetched"}
_RECORDS_PER_EVENT = 5
"""Fetching is so much faster than decoding that fewer records would be too few to measure."""

Say = Callable[[str], None]


def measure_wire(place: Place, events: int, only: Sequence[str], say: Say) -> Wire | None:
    """Everything of the formats that is wanted; None when nothing is. What fails is a fault, the rest stands."""
    sides = {READ: "benchmarks.wire.decode", WRITTEN: "benchmarks.wire.encode", FETCHED: "benchmarks.wire.fetch"}
    wanted = [name for name in sides if matches(name, only)]
    if not wanted:
        return None
    wire = Wire()
    for name in wanted:
        say(f"{name} ...")
        try:
            count = events * _RECORDS_PER_EVENT if name == FETCHED else events
            figures = _measured(place, name, sides[name], count)
        except (OSError, RuntimeError, ValueError) as error:
            wire = attrs.evolve(wire, faults=(*wire.faults, f"{name}: {type(error).__name__}: {error}"))
            continue
        faults = (*wire.faults, f"{name}: {figures['fault']}") if figures["fault"] else wire.faults
        wire = attrs.evolve(wire, **{_FIELDS[name]: figures["figures"]}, faults=faults)
    for line in wire_lines(wire):
        say(f"  {line}")
    return wire


def _measured(place: Place, name: str, module: str, events: int) -> dict[str, Any]:
    job, result = place.work / f"{name}.json", place.work / f"{name}-result.json"
    job.write_text(json.dumps({"bootstrap": place.bootstrap, "events": events, "result": str(result)}))
    step(module, job, place.work / f"{name}.log")
    figures: dict[str, Any] = json.loads(result.read_text())
    return figures
