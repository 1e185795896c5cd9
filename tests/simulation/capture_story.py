"""A number -> a story of the source: what becomes of a table, when it is polled, and what goes wrong at which call."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import attrs

from connector.settings.source.capture import SnapshotMode
from tests.simulation.catalog_server import CatalogKind
from tests.simulation.interruptions import FAULTS, draw_call

TableAct = Literal[
    "insert", "update", "delete", "several", "rewrite files", "expire", "roll back", "make again", "jump of the clock"
]
_ACTS: dict[TableAct, float] = {
    "insert": 5,
    "update": 5,
    "delete": 2.5,
    "several": 2,
    "rewrite files": 1.5,
    "expire": 1.2,
    "roll back": 0.4,
    "make again": 0.15,
    "jump of the clock": 0.6,
}
_MODES: dict[SnapshotMode, float] = {"initial": 8, "when_needed": 4, "no_data": 2, "initial_only": 1, "always": 1}
MOST_CALLS = 24


@attrs.frozen
class CaptureWorld:
    """What holds for a whole story; `part_rows` is about how many rows a part of an initial snapshot has."""

    mode: SnapshotMode = "initial"
    catalog: CatalogKind = "jdbc"
    version: Literal[2, 3] = 2
    part_rows: int = 2

    @property
    def properties(self) -> tuple[str, ...]:
        """The source's."""
        return (
            "name=simulated",
            "bootstrap.servers=localhost:9",
            "debezium.sink.iceberg.warehouse=/nowhere",
            "topic.prefix=lake",
            "table.include.list=d.rows",
            f"snapshot.mode={self.mode}",
            f"max.batch.size={self.part_rows}",
        )


@attrs.frozen
class Change:
    """Somebody does something to the table, or to the machine."""

    act: TableAct
    seed: int

    def __str__(self) -> str:
        return f"table: {self.act} ({self.seed})"


@attrs.frozen
class Stop:
    """The source is killed between two polls."""

    def __str__(self) -> str:
        return "source: killed"


@attrs.frozen
class Poll:
    """The source does so many steps; `during` names calls, by number, and what happens there."""

    steps: int
    during: tuple[tuple[int, Any], ...] = ()

    def __str__(self) -> str:
        return f"source: {self.steps} steps" + "".join(f"\n        at call {at}: {what}" for at, what in self.during)


CaptureStep = Change | Stop | Poll


@attrs.frozen
class CaptureStory:
    """A world, and what happens in it."""

    world: CaptureWorld
    steps: tuple[CaptureStep, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.world), *(f"{n:3d}  {step}" for n, step in enumerate(self.steps))])


def make_capture_story(seed: int, most: int = 18) -> CaptureStory:
    """The story of a seed."""
    rng, far = Random(seed), Random(f"far calls {seed}")
    world = CaptureWorld(
        mode=_pick(rng, _MODES),
        catalog=rng.choice(["jdbc", "rest"]),  # type: ignore[arg-type]
        version=rng.choice([2, 3]),  # type: ignore[arg-type]
        part_rows=rng.choice([1, 2, 100]),
    )
    calm = rng.random() < 0.2
    return CaptureStory(world, tuple(_make_step(rng, far, calm=calm) for _ in range(rng.randint(4, most))))


def _make_step(rng: Random, far: Random, *, calm: bool) -> CaptureStep:
    kind = rng.choices(["change", "poll", "stop"], [6, 5, 0.7])[0]
    if kind == "change":
        return _make_change(rng)
    if kind == "stop":
        return Stop()
    count = 0 if calm else rng.choices([0, 1, 2], [4, 4, 1])[0]
    during = {draw_call(rng, far, MOST_CALLS): _interruption(rng) for _ in range(count)}
    return Poll(rng.choice([1, 1, 2, 3, 6]), tuple(sorted(during.items())))


def _interruption(rng: Random) -> Any:
    return rng.choice(FAULTS) if rng.random() < 0.65 else _make_change(rng)


def _make_change(rng: Random) -> Change:
    return Change(_pick(rng, _ACTS), rng.randrange(1000))


def _pick(rng: Random, weights: Any) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]
