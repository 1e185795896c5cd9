"""The steps of a story: what a source, a cluster, a catalog or a process of the sink does next.

A step says little more than its kind and a number from which its details follow, so that a story is still one when
other steps are left out. What cannot be done in the world as it is is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import attrs

from tests.model.events import Clock
from tests.simulation.catalog_server import CatalogKind

SourceAct = Literal["commit", "commits", "restart", "read", "truncate", "poison", "grow", "fail over", "delete"]
KafkaAct = Literal["compact topic", "retain", "recreate", "reset offsets"]
TableAct = Literal[
    "rewrite files",
    "append rows",
    "change row",
    "expire",
    "roll back",
    "land late commits",
    "jump of the clock",
    "forget deletes",
    "busy nodes",
    "drop",
    "make again",
    "read along",
]


WriteMode = Literal["equality-delete", "position-delete", "copy-on-write"]

_PLACES: dict[Clock, tuple[str, ...]] = {
    "postgres": ("source.lsn",),
    "mysql": ("source.server_id", "source.file", "source.pos"),
    "mariadb": ("source.gtid",),
    "seconds": (),
}
"""The fields that make a row tell its place in its source's log."""


Dedup = Literal["__source_ts_ns", "__source_ts_ms", "__ts_ns", "__source_lsn"]
_TIMES: dict[Dedup, tuple[str, ...]] = {
    "__source_ts_ns": ("source.ts_ns",),
    "__source_ts_ms": ("source.ts_ms",),
    "__ts_ns": ("source.ts_ns", "ts_ns"),
    "__source_lsn": ("source.lsn",),
}
"""What tells the later of two changes, and the fields that it takes in the table: the last one has no time at all."""


_EXPIRY = tuple(
    f"iceberg.maintenance.expire-snapshots.{name}=1" for name in ("max-snapshot-age-seconds", "retain-last")
)
"""Whatever its age and its number, a snapshot goes unless somebody needs it."""

CLUSTER_URL = "http://simulated:9200"


@attrs.frozen
class World:
    """What holds for a whole story; `then` is the write mode of every other start, where that is changed in between.

    `moves`: rows change their keys again and again, nothing but a row itself tells its large values, and batches end as
    they do with `transaction.topic`. `numbered`: events tell their number in their transaction.
    """

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
    moves: bool = False
    numbered: bool = True
    dedup: Dedup = "__source_ts_ns"

    @property
    def proves_ages(self) -> bool:
        """Whether each change proves its age to the table: a time of processing contradicts the place of what is sent
        again.
        """
        return self.clock == "postgres" and self.places and self.dedup != "__ts_ns"

    @property
    def worlds(self) -> tuple[World, ...]:
        """What one start after the other goes by."""
        return (self,) if self.then is None else (self, attrs.evolve(self, mode=self.then))

    @property
    def _fields(self) -> Iterable[str]:
        places, parts = _PLACES[self.clock] if self.places else (), ("db", "schema", "table") if self.shared else ()
        return dict.fromkeys(("op", *_TIMES[self.dedup], *places, *parts))

    @property
    def metadata(self) -> tuple[str, ...]:
        """The columns that tell of a row's event."""
        return tuple(f"__{field.replace('.', '_')}" for field in self._fields)

    @property
    def properties(self) -> tuple[str, ...]:
        """The sink's."""
        return (
            "name=simulated",
            "bootstrap.servers=localhost:9",
            "debezium.sink.iceberg.warehouse=/nowhere",
            "topics=" + ",".join(f"db.public.t{number}" for number in range(self.topics)),
            f"debezium.sink.iceberg.upsert={str(self.upsert).lower()}",
            *(self._into_indexes if self.documents else self._into_tables),
            f"debezium.sink.iceberg.format-version={self.version}",
            f"debezium.sink.iceberg.upsert-keep-deletes={str(self.keep_deletes).lower()}",
            *((f"debezium.sink.iceberg.upsert-dedup-column={self.dedup}",) if self.dedup != "__source_ts_ns" else ()),
            f"debezium.transforms.unwrap.add.fields={','.join(self._fields)}",
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


@attrs.frozen
class Story:
    """A world, and what happens in it."""

    world: World
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"{field.name}={getattr(self.world, field.name)}" for field in attrs.fields(World)]
        return "\n".join(["world: " + ", ".join(lines), *(f"{n:3d}  {step}" for n, step in enumerate(self.steps))])


def without(steps: tuple[Step, ...], gone: Iterable[int]) -> tuple[Step, ...]:
    """The steps but some."""
    left = set(gone)
    return tuple(step for place, step in enumerate(steps) if place not in left)
