"""The steps of a story: what a source, a cluster, a catalog or a process of the sink does next.

A step says little more than its kind and a number from which its details follow, so that a story is still one when
other steps are left out. What cannot be done in the world as it is is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Literal

import attrs

from tests.model.events import Clock
from tests.simulation.catalog_server import CatalogKind
from tests.simulation.interruptions import FAULTS

SourceAct = Literal["commit", "commits", "restart", "read", "truncate", "poison", "grow", "fail over"]
KafkaAct = Literal["compact topic", "retain", "recreate"]
TableAct = Literal[
    "rewrite files",
    "append rows",
    "change row",
    "expire",
    "roll back",
    "land late commits",
    "jump of the clock",
    "forget deletes",
]


WriteMode = Literal["equality-delete", "position-delete", "copy-on-write"]

_PLACES: dict[Clock, tuple[str, ...]] = {
    "postgres": ("source.lsn",),
    "mysql": ("source.server_id", "source.file", "source.pos"),
    "mariadb": ("source.gtid",),
    "seconds": (),
}
"""The fields that make a row tell its place in its source's log."""


_EXPIRY = tuple(
    f"iceberg.maintenance.expire-snapshots.{name}=1" for name in ("max-snapshot-age-seconds", "retain-last")
)
"""Whatever its age and its number, a snapshot goes unless somebody needs it."""

CLUSTER_URL = "http://simulated:9200"


@attrs.frozen
class World:
    """What holds for a whole story; `then` is the write mode of every other start, where that is changed in between."""

    partitions: int = 1
    topics: int = 1
    clock: Clock = "postgres"
    upsert: bool = True
    keep_deletes: bool = False
    places: bool = True
    catalog: CatalogKind = "jdbc"
    lazy: bool = False
    parallelism: int = 2
    mode: WriteMode = "equality-delete"
    then: WriteMode | None = None
    search: Literal["join", "key-index"] = "join"
    version: Literal[2, 3] = 2
    documents: bool = False
    leaves_out: bool = False
    shared: bool = False

    @property
    def worlds(self) -> tuple[World, ...]:
        """What one start after the other goes by."""
        return (self,) if self.then is None else (self, attrs.evolve(self, mode=self.then))

    @property
    def properties(self) -> tuple[str, ...]:
        """The sink's."""
        places, parts = _PLACES[self.clock] if self.places else (), ("db", "schema", "table") if self.shared else ()
        fields = ",".join(("op", "source.ts_ns", *places, *parts))
        return (
            "name=simulated",
            "bootstrap.servers=localhost:9",
            "debezium.sink.iceberg.warehouse=/nowhere",
            "topics=" + ",".join(f"db.public.t{number}" for number in range(self.topics)),
            f"debezium.sink.iceberg.upsert={str(self.upsert).lower()}",
            *(self._into_indexes if self.documents else self._into_tables),
            f"debezium.sink.iceberg.format-version={self.version}",
            f"debezium.sink.iceberg.upsert-keep-deletes={str(self.keep_deletes).lower()}",
            f"debezium.transforms.unwrap.add.fields={fields}",
            f"truncate.enabled={str(self.upsert and not (self.keep_deletes and self.documents)).lower()}",
            "errors.deadletterqueue.limit.ratio=1",
            *_EXPIRY,
        )

    @property
    def _into_tables(self) -> tuple[str, ...]:
        mode = (f"debezium.sink.iceberg.write-mode={self.mode}",) if self.upsert else ()
        if self.shared:
            mode += (
                r"debezium.sink.iceberg.destination-regexp=db\\.public\\.t.",
                "debezium.sink.iceberg.destination-regexp-replace=all",
            )
        return *mode, f"iceberg.row-lookup={self.search}", "debezium.sink.iceberg.maintenance.enabled=false"

    @property
    def _into_indexes(self) -> tuple[str, ...]:
        return "debezium.sink.type=opensearch", f"connection.url={CLUSTER_URL}", "behavior.on.null.values=delete"


@attrs.frozen
class SourceStep:
    """A source, or its connector, does something."""

    act: SourceAct
    seed: int

    def __str__(self) -> str:
        return f"source: {self.act} ({self.seed})"


@attrs.frozen
class KafkaStep:
    """The cluster does something to a topic."""

    act: KafkaAct
    seed: int

    def __str__(self) -> str:
        return f"kafka: {self.act} ({self.seed})"


@attrs.frozen
class TableStep:
    """Somebody else does something to a table, or to the machine."""

    act: TableAct
    seed: int

    def __str__(self) -> str:
        return f"table: {self.act} ({self.seed})"


@attrs.frozen
class Kill:
    """A process of the sink is killed between two batches."""

    process: int

    def __str__(self) -> str:
        return f"sink {self.process}: killed"


@attrs.frozen
class Batch:
    """A process of the sink brings in a batch, and starts before where it does not run.

    `whole` takes all that there is; one with a `grid` ends at every third offset only, so that batches of many stories
    are alike. `during` names calls, by number, and what happens there: a fault, or another step.
    """

    process: int
    seed: int
    whole: bool = False
    during: tuple[tuple[int, Any], ...] = ()
    grid: int | None = None

    def cut(self, at: int, end: int) -> int:
        """Return where to end, between an offset and the end of what there is."""
        return at if self.grid is None else min(at + (self.grid - at) % 3, end)

    def __str__(self) -> str:
        grid = "" if self.grid is None else f", grid {self.grid}"
        told = f"sink {self.process}: batch{' of all there is' if self.whole else f' ({self.seed}{grid})'}"
        return told + "".join(f"\n        at call {number}: {what}" for number, what in self.during)


@attrs.frozen
class Maintain:
    """Our own maintenance of a table, in a process of its own; `during` as of a batch.

    One that is `apart` is another connector's, which has an offsets table of its own: no lease keeps the two from one
    another.
    """

    tasks: tuple[str, ...]
    seed: int
    during: tuple[tuple[int, Any], ...] = ()
    apart: bool = False

    def __str__(self) -> str:
        told = f"maintenance{' of another connector' if self.apart else ''}: {', '.join(self.tasks)} ({self.seed})"
        return told + "".join(f"\n        at call {number}: {what}" for number, what in self.during)


Step = SourceStep | KafkaStep | TableStep | Kill | Batch | Maintain

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
"""Calls of a batch that begins with a start, and of a run of maintenance, roughly."""
_MAINTENANCE_WORKS, _CONVERSION_TAKES = (10, 11, 12, 12, 13, 13, 14, 16, 18), (0, 2, 9, 11)
"""Calls of a run of maintenance between its lease and its commit, roughly; and how many more a conversion takes that
comes before.
"""
_BEFORE_COMMIT = {"rewrite": (14, 15, 15, 15), "convert": (14, 16, 17, 18)}
"""Calls of a run of one task between its files and its commit, roughly."""
_TASKS = (("convert",), ("rewrite",), ("expire",), ("convert", "rewrite"), ("convert", "rewrite", "expire"))


@attrs.frozen
class Story:
    """A world, and what happens in it."""

    world: World
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"{field.name}={getattr(self.world, field.name)}" for field in attrs.fields(World)]
        return "\n".join(["world: " + ", ".join(lines), *(f"{n:3d}  {step}" for n, step in enumerate(self.steps))])


SCRIPT, CUTS = 128, 8
"""So many seeds in a row have one script, and batches of it end in so many ways."""


@attrs.frozen(eq=False)
class Script:
    """What sources are, and what they do, in the order in which they do it: the same records for all its stories."""

    rng: Random
    world: World
    steps: list[Step] = attrs.field(factory=list)
    grid: int = 0

    @staticmethod
    def of(number: int) -> Script:
        rng = Random(f"script {number}")
        clock: Clock = rng.choices(["postgres", "mysql", "mariadb", "seconds"], [8, 1, 1, 1])[0]  # type: ignore[assignment]
        topics, documents = rng.choice([1, 1, 1, 2]), rng.random() < 0.2
        world = World(
            partitions=rng.choice([1, 1, 2, 3]),
            topics=topics,
            clock=clock,
            places=rng.random() < 0.75,
            documents=documents,
            leaves_out=documents and clock == "postgres" and rng.random() < 0.5,
            # Two sources fill one table.
            shared=topics > 1 and not documents and rng.random() < 0.5,
        )
        return Script(rng, world, [SourceStep("commits", rng.randrange(1000))], number % 3)

    def cut(self, step: Step) -> Step:
        """Have batches end at few places, which are other ones in each script."""
        if not isinstance(step, Batch | Maintain):
            return step
        during = tuple((at, what if isinstance(what, str) else self.cut(what)) for at, what in step.during)
        if isinstance(step, Maintain):
            return attrs.evolve(step, during=during)
        return attrs.evolve(step, during=during, seed=step.seed % CUTS, grid=self.grid)

    def step(self, number: int) -> Step:
        """What the sources do as the n-th thing."""
        while number >= len(self.steps):
            self.steps.append(_source_step(self.rng))
        return self.steps[number]


def make_story(seed: int, most: int = 14) -> Story:
    """The story of a seed; those of a script have its sources, and differ in all that else is there and happens."""
    rng, script = Random(seed), Script.of(seed // SCRIPT)
    world = _change_mode(seed, _make_world(rng, script.world))
    calm = rng.random() < 0.3
    steps: list[Step] = [script.step(0)]
    done = 1
    for _ in range(rng.randint(3, most)):
        kind = rng.choices(["source", "batch", "table", "kafka", "kill"], [5, 5, 1.5, 0.6, 0.5])[0]
        steps.append(script.step(done) if kind == "source" else _make_step(rng, kind, calm=calm))
        done += kind == "source"
    return Story(world, tuple(map(script.cut, steps if world.documents else _with_maintenance(seed, steps, calm=calm))))


def spread(seeds: range) -> list[int]:
    """Return seeds in an order in which those of one script are far apart."""
    return sorted(seeds, key=lambda seed: seed % SCRIPT)


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
    )


def _change_mode(seed: int, world: World) -> World:
    """Have some stories change the write mode; they are the same but for it."""
    rng, modes = Random(f"mode {seed}"), ("equality-delete", "position-delete", "copy-on-write")
    then: Any = rng.choice([mode for mode in modes if mode != world.mode])
    return attrs.evolve(world, then=then) if world.upsert and not world.documents and rng.random() < 0.2 else world


def _make_step(rng: Random, kind: str, *, calm: bool) -> Step:
    if kind == "table":
        return TableStep(_pick(rng, _TABLE), rng.randrange(1000))
    if kind == "kafka":
        return KafkaStep(_pick(rng, _KAFKA), rng.randrange(1000))
    process = 0 if rng.random() < 0.9 else 1
    if kind == "kill":
        return Kill(process)
    return Batch(process, rng.randrange(1000), rng.random() < 0.3, () if calm else _interruptions(rng, process))


def _source_step(rng: Random) -> Step:
    return SourceStep(_pick(rng, _SOURCE), rng.randrange(1000))


def _interruptions(rng: Random, process: int) -> tuple[tuple[int, Any], ...]:
    count = rng.choices([0, 1, 2, 4], [4, 5, 2, 1])[0]
    found: dict[int, Any] = {}
    for _ in range(count):
        found[rng.randrange(MOST_CALLS)] = _interruption(rng, process)
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
    rng = Random(f"maintenance {seed}")
    if not calm and rng.random() < 0.06:
        place = rng.randint(1, len(steps))
        steps[place:place] = _make_late_commit(rng)
    for _ in range(rng.choices([0, 1, 2, 3], [12, 4, 3, 1])[0]):
        tasks = rng.choice(_TASKS)
        during = () if calm else _maintenance_interruptions(rng, _CONVERSION_TAKES if len(tasks) > 1 else (0,))
        steps.insert(rng.randint(1, len(steps)), Maintain(tasks, rng.randrange(1000), during))
    overlaps = Random(f"overlap {seed}")
    if not calm and overlaps.random() < 0.15:
        # Behind something that a batch can bring: sources do what their script says, and nothing more.
        place = overlaps.choice([at for at, step in enumerate(steps, 1) if isinstance(step, SourceStep)][-3:])
        steps[place:place] = _make_overlap(overlaps)
    return steps


def _make_overlap(rng: Random) -> list[Step]:
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


def _make_late_commit(rng: Random) -> list[Step]:
    """A run is killed while its commit is on its way, which arrives when the next run has read the table."""
    begins, works = rng.choice(_MAINTENANCE_WORKS), rng.choice(_MAINTENANCE_WORKS)
    # What the run has read is behind what its commit lands upon.
    batch = ((begins - 2, Batch(0, rng.randrange(1000), whole=True)),) if rng.random() < 0.7 else ()
    tasks = (rng.choice(("convert", "rewrite")),), (rng.choice(("convert", "rewrite")),)
    first = Maintain(tasks[0], rng.randrange(1000), (*batch, (begins, "late"), (begins + 1, "crash")))
    return [first, Maintain(tasks[1], rng.randrange(1000), ((works, TableStep("land late commits", 0)),))]


def _maintenance_interruptions(rng: Random, later: tuple[int, ...]) -> tuple[tuple[int, Any], ...]:
    """Faults anywhere, and what others do between the reading of a table and the commit. A rollback is not among it:
    the expiry could take away all that tells of it (docs/guarantees.md).
    """
    others: list[TableAct] = ["rewrite files", "append rows", "change row", "expire", "land late commits"]
    found: dict[int, Any] = {}
    for _ in range(rng.choices([0, 1, 2, 4, 6], [2, 4, 3, 3, 1])[0]):
        kind, at = rng.random(), rng.choice(_MAINTENANCE_WORKS) + rng.choice(later)
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
            found[rng.randrange(MOST_MAINTENANCE_CALLS)] = rng.choice(FAULTS)
    return tuple(sorted(found.items()))


def _pick(rng: Random, weights: Any) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def without(steps: tuple[Step, ...], gone: Iterable[int]) -> tuple[Step, ...]:
    """The steps but some."""
    left = set(gone)
    return tuple(step for place, step in enumerate(steps) if place not in left)
