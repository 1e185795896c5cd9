"""A seed -> its story: a world, and what happens in it."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from random import Random
from typing import Any, get_args

import attrs

from tests.model.events import Clock
from tests.simulation.additions import add_others, make_drop, make_foreign_change, make_growth, make_truncate
from tests.simulation.interruptions import FAULTS, draw_call
from tests.simulation.overlaps import (
    CONVERSION_TAKES,
    MAINTENANCE_WORKS,
    make_late_commit,
    make_mode_change,
    make_overlap,
    make_small_batches,
)
from tests.simulation.steps import (
    Batch,
    Dedup,
    KafkaAct,
    KafkaStep,
    Kill,
    Maintain,
    SourceAct,
    SourceStep,
    Step,
    Story,
    TableAct,
    TableStep,
    World,
)

_SOURCE: dict[SourceAct, float] = {
    "commit": 10,
    "commits": 6,
    "restart": 6,
    "read": 1.5,
    "truncate": 0.4,
    "poison": 0.5,
    "grow": 0.3,
    "fail over": 0.3,
}
_KAFKA: dict[KafkaAct, float] = {"compact topic": 1, "retain": 0.15, "recreate": 0.1}
_TABLE: dict[TableAct, float] = {
    "rewrite files": 1,
    "append rows": 1.2,
    "change row": 0.8,
    "expire": 1,
    "roll back": 0.25,
    "land late commits": 1.2,
    "jump of the clock": 0.3,
    "forget deletes": 0.6,
}
MOST_CALLS, MOST_MAINTENANCE_CALLS = 34, 30
"""Calls of most batches that begin with a start, and of most runs of maintenance."""
_TASKS = (("convert",), ("rewrite",), ("expire",), ("convert", "rewrite"), ("convert", "rewrite", "expire"))

_MOVES = 0.25
"""How many of the scripts that can have them are of rows that change their keys over and over."""

SCRIPT, CUTS = 128, 8
"""So many seeds in a row have one script, and batches of it end in so many ways."""


_SCENES = make_small_batches, make_mode_change


@attrs.frozen(eq=False)
class Script:
    """What sources are, and what they do, in the order in which they do it: the same records for all its stories."""

    rng: Random
    world: World
    steps: list[Step] = attrs.field(factory=list)
    grid: int = 0

    @staticmethod
    @lru_cache(maxsize=8)
    def of(number: int) -> Script:
        rng = Random(f"script {number}")
        clock: Clock = rng.choices(["postgres", "mysql", "mariadb", "seconds"], [8, 1, 1, 1])[0]  # type: ignore[assignment]
        topics, documents = rng.choice([1, 1, 1, 2]), rng.random() < 0.2
        tables_lack = clock == "postgres" and not documents and Random(f"leaves out {number}").random() < 0.4
        world = World(
            partitions=rng.choice([1, 1, 2, 3]),
            topics=topics,
            clock=clock,
            places=rng.random() < 0.75,
            documents=documents,
            leaves_out=tables_lack or (documents and clock == "postgres" and rng.random() < 0.5),
            # Two sources fill one table.
            shared=topics > 1 and not documents and rng.random() < 0.5,
        )
        if clock == "postgres" and not documents:
            world = _choose_dedup(number, _move_rows(number, world))
        return Script(rng, world, [SourceStep("commits", rng.randrange(1000))], number % 3)

    def cut(self, step: Step) -> Step:
        """Have batches end at few places, which are other ones in each script."""
        if isinstance(step, SourceStep) and self._proves_nothing(step.act):
            return attrs.evolve(step, act="commit")
        if not isinstance(step, Batch | Maintain):
            return step
        during = tuple((at, what if isinstance(what, str) else self.cut(what)) for at, what in step.during)
        if isinstance(step, Maintain):
            return attrs.evolve(step, during=during)
        return attrs.evolve(step, during=during, seed=step.seed % CUTS, grid=self.grid)

    def _proves_nothing(self, act: SourceAct) -> bool:
        """Tell whether nobody knows any more which row had a key when: rows that were read tell no age, and by times of
        processing nothing that is sent again is proven to be.
        """
        return self.world.moves and (act == "read" or (act == "restart" and self.world.dedup == "__ts_ns"))

    def step(self, number: int) -> Step:
        """What the sources do as the n-th thing."""
        while number >= len(self.steps):
            self.steps.append(_source_step(self.rng))
        return self.steps[number]


def make_story(seed: int, most: int = 14) -> Story:
    """The story of a seed; those of a script have its sources, and differ in all that else is there and happens."""
    rng, script = Random(seed), Script.of(seed // SCRIPT)
    far = Random(f"far calls {seed}")
    world = _change_mode(seed, _make_world(rng, script.world))
    calm = rng.random() < 0.3
    steps: list[Step] = [script.step(0)]
    done = 1
    for _ in range(rng.randint(3, most)):
        kind = rng.choices(["source", "batch", "table", "kafka", "kill"], [5, 5, 1.5, 0.6, 0.5])[0]
        steps.append(script.step(done) if kind == "source" else _make_step(rng, far, kind, calm=calm))
        done += kind == "source"
    scenes, moves = Random(f"scene {seed}"), map(script.step, count(done))
    steps = make_truncate(seed, world, steps, lambda: next(moves), calm=calm)
    steps = make_growth(seed, world, steps, lambda: next(moves))
    steps = make_drop(seed, world, steps, lambda: next(moves))
    steps = make_foreign_change(seed, world, steps, lambda: next(moves), calm=calm)
    if world.upsert and not world.documents and scenes.random() < 0.08:
        world, scene = scenes.choice(_SCENES)(scenes, lambda: next(moves), world)
        # What was before it is of little matter.
        steps = [*steps[: scenes.randint(1, 4)], *scene]
    elif not world.documents:
        steps = _with_maintenance(seed, steps, calm=calm)
    steps = add_others(seed, world, steps, calm=calm, most_calls=MOST_CALLS)
    return Story(world, tuple(map(script.cut, steps)))


def _move_rows(number: int, world: World) -> World:
    """Have rows of some scripts change their keys over and over."""
    rng = Random(f"moves {number}")
    if rng.random() >= _MOVES:
        return world
    dedup: Dedup = rng.choices(["__source_ts_ns", "__ts_ns"], [4, 1])[0]  # type: ignore[assignment]
    told = {"partitions": rng.choice([1, 1, 2]), "topics": 1, "shared": False, "places": rng.random() < 0.85}
    return attrs.evolve(world, leaves_out=True, moves=True, numbered=rng.random() < 0.6, dedup=dedup, **told)


def spread(seeds: range) -> list[int]:
    """Return seeds in an order in which those of one script are far apart."""
    return sorted(seeds, key=lambda seed: seed % SCRIPT)


def _choose_dedup(number: int, world: World) -> World:
    """Have some scripts order changes by something else than the source's time in nanoseconds."""
    if world.moves:
        return world
    dedup: Dedup = Random(f"dedup {number}").choices(get_args(Dedup), [6, 1, 1, 1])[0]
    return attrs.evolve(world, dedup=dedup)


def _make_world(rng: Random, sources: World) -> World:
    upsert = rng.random() < 0.85
    return attrs.evolve(
        sources,
        upsert=upsert,
        keep_deletes=rng.random() < 0.4,
        catalog=rng.choice(["jdbc", "rest"]),
        lazy=rng.random() < 0.5,
        parallelism=rng.choice([1, 1, 1, 2]),
        mode=rng.choices(["equality-delete", "position-delete", "copy-on-write"], [2, 1, 1])[0],
        search=rng.choice(["join", "key-index"]),
        version=rng.choice([2, 3]),
        leaves_out=sources.leaves_out and upsert,
        moves=sources.moves and upsert,
    )


def _change_mode(seed: int, world: World) -> World:
    """Have some stories change the write mode; they are the same but for it."""
    rng, modes = Random(f"mode {seed}"), ("equality-delete", "position-delete", "copy-on-write")
    then: Any = rng.choice([mode for mode in modes if mode != world.mode])
    return attrs.evolve(world, then=then) if world.upsert and not world.documents and rng.random() < 0.2 else world


def _make_step(rng: Random, far: Random, kind: str, *, calm: bool) -> Step:
    if kind == "table":
        return TableStep(_pick(rng, _TABLE), rng.randrange(1000))
    if kind == "kafka":
        return KafkaStep(_pick(rng, _KAFKA), rng.randrange(1000))
    process = 0 if rng.random() < 0.9 else 1
    if kind == "kill":
        return Kill(process)
    return Batch(process, rng.randrange(1000), rng.random() < 0.3, () if calm else _interruptions(rng, far, process))


def _source_step(rng: Random) -> Step:
    return SourceStep(_pick(rng, _SOURCE), rng.randrange(1000))


def _interruptions(rng: Random, far: Random, process: int) -> tuple[tuple[int, Any], ...]:
    count = rng.choices([0, 1, 2, 4], [4, 5, 2, 1])[0]
    found: dict[int, Any] = {}
    for _ in range(count):
        found[draw_call(rng, far, MOST_CALLS)] = _interruption(rng, process)
    return tuple(sorted(found.items()))


def _interruption(rng: Random, process: int) -> Any:
    kind = rng.random()
    if kind < 0.65:
        return rng.choice(FAULTS)
    if kind < 0.9:
        return TableStep(_pick(rng, _TABLE), rng.randrange(1000))
    if kind < 0.95:
        return _source_step(rng)
    return Batch(1 - process, rng.randrange(1000), rng.random() < 0.5)


def _with_maintenance(seed: int, steps: list[Step], *, calm: bool) -> list[Step]:
    """Add our own maintenance to some stories; they are the same but for it."""
    rng, far = Random(f"maintenance {seed}"), Random(f"far calls of maintenance {seed}")
    if not calm and rng.random() < 0.06:
        place = rng.randint(1, len(steps))
        steps[place:place] = make_late_commit(rng)
    for _ in range(rng.choices([0, 1, 2, 3], [12, 4, 3, 1])[0]):
        tasks = rng.choice(_TASKS)
        during = () if calm else _maintenance_interruptions(rng, far, CONVERSION_TAKES if len(tasks) > 1 else (0,))
        steps.insert(rng.randint(1, len(steps)), Maintain(tasks, rng.randrange(1000), during))
    overlaps = Random(f"overlap {seed}")
    if not calm and overlaps.random() < 0.15:
        # Behind something that a batch can bring: sources do what their script says, and nothing more.
        place = overlaps.choice([at for at, step in enumerate(steps, 1) if isinstance(step, SourceStep)][-3:])
        steps[place:place] = make_overlap(overlaps)
    return steps


def _maintenance_interruptions(rng: Random, far: Random, later: tuple[int, ...]) -> tuple[tuple[int, Any], ...]:
    """Faults anywhere, and what others do between the reading of a table and the commit. A rollback is not among it:
    the expiry could take away all that tells of it (docs/guarantees.md).
    """
    others: list[TableAct] = ["rewrite files", "append rows", "change row", "expire", "land late commits"]
    found: dict[int, Any] = {}
    for _ in range(rng.choices([0, 1, 2, 4, 6], [2, 4, 3, 3, 1])[0]):
        kind, at = rng.random(), rng.choice(MAINTENANCE_WORKS) + rng.choice(later)
        if kind < 0.45:
            # Of several the first may bring nothing but deletes, which Iceberg takes along where nothing is as old.
            for place in range(at, at + rng.choice([1, 1, 1, 2, 3])):
                found[place] = Batch(0 if rng.random() < 0.9 else 1, rng.randrange(1000), rng.random() < 0.4)
        elif kind < 0.49:
            # This run stands still until its lease has ended, and another goes on.
            found |= {at: TableStep("jump of the clock", rng.randrange(1000)), at + 1: Batch(0, 0, whole=True)}
            found[at + 2] = Maintain(rng.choice(_TASKS), rng.randrange(1000))
        elif kind < 0.6:
            found[at] = TableStep(rng.choice(others), rng.randrange(1000))
        elif kind < 0.75:
            found[at] = _source_step(rng)
        else:
            found[draw_call(rng, far, MOST_MAINTENANCE_CALLS)] = rng.choice(FAULTS)
    return tuple(sorted(found.items()))


def _pick(rng: Random, weights: Any) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]
