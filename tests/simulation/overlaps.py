"""Random numbers -> steps in which maintenance and others are at work on a table at once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs

from tests.simulation.steps import Batch, Kill, Maintain, SourceStep, Step, TableStep, World

MAINTENANCE_WORKS, CONVERSION_TAKES = (10, 11, 12, 12, 13, 13, 14, 16, 18), (0, 2, 9, 11)
"""Calls of a run of maintenance between its lease and its commit, roughly; and how many more a conversion takes that
comes before.
"""
_BEFORE_COMMIT = {"rewrite": (14, 15, 15, 15), "convert": (14, 16, 17, 18)}
"""Calls of a run of one task between its files and its commit, roughly."""


def make_overlap(rng: Random) -> list[Step]:
    """Two runs at work at once, which leases keep apart in other stories: the one stands still until its lease has
    ended, or is killed with its commit on its way, or the other is another connector's.
    """
    task, other = rng.choice((("rewrite", "convert"), ("rewrite", "convert"), ("convert", "rewrite")))
    at, batch = rng.choice(_BEFORE_COMMIT[task]), Batch(0, rng.randrange(1000), whole=True)
    seeds, pause = [rng.randrange(1000) for _ in range(2)], TableStep("jump of the clock", rng.randrange(1000))
    match rng.choice(("stands still", "is killed", "is another's")):
        case "stands still":
            during = (at - 1, pause), (at, batch), (at + 1, Maintain((other,), seeds[0]))
            return [Maintain((task,), seeds[1], during)]
        case "is killed":
            killed = Maintain((task,), seeds[1], ((at - 1, batch), (at, "late"), (at + 1, "crash")))
            lands = rng.choice(_BEFORE_COMMIT[other]) - 1, TableStep("land late commits", 0)
            return [killed, pause, Maintain((other,), seeds[0], (lands,))]
    during = (at - 1, batch), (at, Maintain((other,), seeds[0], apart=True))
    return [Maintain((task,), seeds[1], during)]


def make_late_commit(rng: Random) -> list[Step]:
    """A run is killed while its commit is on its way, which arrives when the next run has read the table."""
    begins, works = rng.choice(MAINTENANCE_WORKS), rng.choice(MAINTENANCE_WORKS)
    # What the run has read is behind what its commit lands upon.
    batch = ((begins - 2, Batch(0, rng.randrange(1000), whole=True)),) if rng.random() < 0.7 else ()
    tasks = (rng.choice(("convert", "rewrite")),), (rng.choice(("convert", "rewrite")),)
    first = Maintain(tasks[0], rng.randrange(1000), (*batch, (begins, "late"), (begins + 1, "crash")))
    return [first, Maintain(tasks[1], rng.randrange(1000), ((works, TableStep("land late commits", 0)),))]


def make_small_batches(rng: Random, move: Callable[[], Step], world: World) -> tuple[World, list[Step]]:
    """While files are merged, a batch brings deletes by key and nothing else, the next one rows that are younger."""
    world, whole = attrs.evolve(world, keep_deletes=False, mode="equality-delete", then=None), Batch(0, 0, whole=True)
    at, delete = rng.choice(MAINTENANCE_WORKS[:5]), SourceStep("delete", rng.randrange(1000))
    during = (at, delete), (at + 1, whole), (at + 2, move()), (at + 3, whole)
    return world, [move(), whole, Maintain(("rewrite",), rng.randrange(1000), during)]


def make_mode_change(rng: Random, move: Callable[[], Step], world: World) -> tuple[World, list[Step]]:
    """The write mode was changed, and a batch comes that puts vectors to data files for which a conversion has some."""
    world = attrs.evolve(world, version=3, mode="equality-delete", then="position-delete")
    whole, at = Batch(0, 0, whole=True), rng.choice(MAINTENANCE_WORKS[:6]) - rng.choice([0, 0, 1])
    convert = Maintain(("convert",), rng.randrange(1000), ((at, whole),))
    return world, [whole, move(), whole, Kill(0), move(), convert]
