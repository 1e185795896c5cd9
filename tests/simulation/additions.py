"""Steps of a story -> the same, and what others do that is drawn apart: seeds that do not get it stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import attrs

from tests.simulation.interruptions import FAULTS, OUTAGE, draw_call
from tests.simulation.steps import Batch, KafkaStep, Maintain, SourceStep, Step, TableAct, TableStep, World

_BUSY, _DROPPED, _READ, _TRUNCATED, _GROWN = 0.35, 0.04, 0.5, 0.05, 0.04
"""How often nodes of a cluster have no time, a table is dropped, a source reads what is maintained, a truncate stands
among changes in several batches, and a topic grows between changes of its keys."""
_DROPPED_BETWEEN, _RESET = 0.02, 0.04
"""How often a table is dropped between two batches with rows for it, and the consumer group's offsets are reset."""
_OUT, _RETAINED = 0.08, 0.1
"""How often nobody answers for long, and retention takes what a topic that grows has in its new partition."""
_CHANGED, _REWRITE_WORKS = 0.1, (3, 14)
"""How often another writer changes its rows in a file that a batch writes anew, and the calls while it does so."""
_TRUNCATE_WORKS = (6, 30)
"""Calls of a batch between which its truncates are carried out, roughly."""


def add_others(seed: int, world: World, steps: list[Step], *, calm: bool, most_calls: int) -> list[Step]:
    """Add them; in the middle of a batch, too, where the story is not calm."""
    rng = Random(f"others {seed}")
    steps = steps if calm else _add_outage(seed, steps, most_calls)
    resets = Random(f"resets {seed}")
    if resets.random() < _RESET:
        steps = list(steps)
        steps.insert(resets.randint(1, len(steps)), KafkaStep("reset offsets", resets.randrange(1000)))
    if world.documents:
        busy: list[TableAct] = ["busy nodes"] * rng.randint(1, 3)
        return _insert(rng, steps, busy, most_calls, calm=calm) if rng.random() < _BUSY else steps
    if rng.random() < _DROPPED:
        dropped: list[TableAct] = [rng.choice(("drop", "make again"))]
        steps = _insert(rng, steps, dropped, most_calls, calm=calm)
    if any("expire" in step.tasks for step in steps if isinstance(step, Maintain)) and rng.random() < _READ:
        steps = _insert(rng, steps, ["read along"] * rng.randint(1, 2), most_calls, calm=True)
    return steps


def make_truncate(seed: int, world: World, steps: list[Step], move: Callable[[], Step], *, calm: bool) -> list[Step]:
    """Have some stories be about a truncate that comes behind changes which are later than it, in other partitions or
    before its connector restarts, and while others are at work.
    """
    rng = Random(f"truncate {seed}")
    if not world.upsert or world.documents or rng.random() >= _TRUNCATED:
        return steps
    scene = [move(), Batch(0, 0, whole=True), SourceStep("truncate", rng.randrange(1000)), move()]
    if rng.random() < 0.3:
        scene.append(SourceStep("truncate", rng.randrange(1000)))
    scene += [move(), Batch(0, rng.randrange(1000), rng.random() < 0.3, _interrupt_truncate(rng, calm=calm))]
    if rng.random() < 0.6:
        scene.append(SourceStep("restart", rng.randrange(1000)))
    scene += [Batch(0, rng.randrange(1000), during=_interrupt_truncate(rng, calm=calm)), Batch(0, 0, whole=True)]
    return [*steps[: rng.randint(1, 3)], *scene]


def make_growth(seed: int, world: World, steps: list[Step], move: Callable[[], Step]) -> list[Step]:
    """Have some stories be about a topic that grows: keys have changes in two partitions, batches end within them, and
    the connector may send all of it again.
    """
    rng = Random(f"growth {seed}")
    if not world.upsert or world.documents or world.clock != "postgres" or rng.random() >= _GROWN:
        return steps
    scene = [move(), Batch(0, 0, whole=True), move(), SourceStep("grow", rng.randrange(1000)), move()]
    if rng.random() < 0.5:
        scene.append(SourceStep("restart", rng.randrange(1000)))
    batches = [Batch(0, rng.randrange(1000)) for _ in range(3)]
    if rng.random() < _RETAINED:
        scene.append(KafkaStep("retain", rng.randrange(1000)))
    return [*steps[:1], *scene, *batches, Batch(0, 0, whole=True)]


def make_foreign_change(
    seed: int, world: World, steps: list[Step], move: Callable[[], Step], *, calm: bool
) -> list[Step]:
    """Have some stories be about rows of another writer that change while a batch writes their file anew."""
    rng = Random(f"foreign change {seed}")
    if calm or not world.upsert or world.documents or world.mode != "copy-on-write" or rng.random() >= _CHANGED:
        return steps
    appended = [TableStep("append rows", rng.randrange(1000)) for _ in range(3)]
    merged = TableStep("rewrite files", rng.randrange(1000))
    scene = [move(), Batch(0, 0, whole=True), *appended, merged, move(), move()]
    at = sorted(rng.sample(range(*_REWRITE_WORKS), 2))
    during = tuple((place, TableStep("change row", rng.randrange(1000))) for place in at)
    return [*steps[: rng.randint(1, 3)], *scene, Batch(0, 0, whole=True, during=during)]


def make_drop(seed: int, world: World, steps: list[Step], move: Callable[[], Step]) -> list[Step]:
    """Have some stories be about a table that somebody drops between two batches that have rows for it."""
    rng = Random(f"drop {seed}")
    if world.documents or rng.random() >= _DROPPED_BETWEEN:
        return steps
    dropped, whole = TableStep(rng.choice(("drop", "make again")), rng.randrange(1000)), Batch(0, 0, whole=True)
    return [*steps[: rng.randint(1, 3)], move(), whole, dropped, move(), whole]


def _interrupt_truncate(rng: Random, *, calm: bool) -> tuple[tuple[int, Any], ...]:
    if calm or rng.random() < 0.4:
        return ()
    what = Batch(1, rng.randrange(1000), whole=True), TableStep("append rows", rng.randrange(1000)), rng.choice(FAULTS)
    return ((rng.randint(*_TRUNCATE_WORKS), rng.choice(what)),)


def _add_outage(seed: int, steps: list[Step], most_calls: int) -> list[Step]:
    """Have nobody answer for long in the middle of some batches: what is tried again then fails all the same."""
    rng, far = Random(f"outage {seed}"), Random(f"far calls of outages {seed}")
    batches = [place for place, step in enumerate(steps) if isinstance(step, Batch)]
    if not batches or rng.random() >= _OUT:
        return steps
    at, made = rng.choice(batches), list(steps)
    during = {draw_call(rng, far, most_calls): OUTAGE, **dict(made[at].during)}
    made[at] = attrs.evolve(made[at], during=tuple(sorted(during.items(), key=lambda one: one[0])))
    return made


def _insert(rng: Random, steps: list[Step], acts: Iterable[TableAct], most_calls: int, *, calm: bool) -> list[Step]:
    made = list(steps)
    for act in acts:
        step, at = TableStep(act, rng.randrange(1000)), rng.randint(1, len(made))
        batch = made[at - 1]
        if not calm and isinstance(batch, Batch) and rng.random() < 0.5:
            during = dict(batch.during)
            during.setdefault(rng.randrange(most_calls), step)
            made[at - 1] = attrs.evolve(batch, during=tuple(sorted(during.items(), key=lambda one: one[0])))
        else:
            made.insert(at, step)
    return made
