"""options -> cases: which contender runs on which topic, into which table, in batches of what size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import attrs

Contender = Literal["ours", "from-json", "merge-mor", "merge-cow", "flink", "connect"]

APPEND, UPSERT, LARGE, LATENCY = "orders_append", "orders_upsert", "orders_large", "orders_latency"
MANY, TABLES = "orders_many", 200
APPEND_BATCHES = UPSERT_BATCHES = 4
POSITIONS = {"debezium.sink.iceberg.write-mode": "position-delete"}
FORGETFUL = {"deleted.keys.retention.ms": "0"}
"""Without the table of deleted keys, which is the greater part of what order across batches costs."""

UNDATED = {**FORGETFUL, "debezium.sink.iceberg.upsert-dedup-column": "no_such_column"}
"""Without dates a table has no watermarks: what they cost is the difference."""

MAINTENANCE_CASE = "maintenance"
CONVERTED = {
    "iceberg.maintenance.enabled": "true",
    "iceberg.maintenance.rate-limit-seconds": "10",
    "iceberg.maintenance.convert-equality-deletes.schedule.interval-second": "30",
    "iceberg.maintenance.rewrite.enabled": "false",
}
"""A sink that converts its equality deletes every 30 seconds."""

PROMPT = {"debezium.sink.batch.interval-ms": "200"}
"""A sink that commits up to five times a second."""

LATENCY_RATE_PER_S, LATENCY_SECONDS, FIRST_EVENTS = 5_000, 60, 1_000


@attrs.frozen
class Sizes:
    """How much is produced: events per topic, keys, rows of the big table, upserts of a batch there, wire events."""

    append: int = 2_000_000
    upsert: int = 1_000_000
    keys: int = 200_000
    rows: int = 5_000_000
    wire: int = 200_000
    changes: int = 10_000
    latency_seconds: int = LATENCY_SECONDS
    latency_rate: int = LATENCY_RATE_PER_S
    factor: float = 1.0

    @property
    def stride(self) -> int:
        """Distance of the events' ids, so that they lie spread over all rows of the big table."""
        return max(1, self.rows // self.keys)

    def scaled(self, factor: float) -> Sizes:
        """The same benchmark at a fraction of its size; the latency run gets shorter, its rate stays."""
        return Sizes(
            append=max(400, round(self.append * factor)),
            upsert=max(400, round(self.upsert * factor)),
            keys=max(20, round(self.keys * factor)),
            rows=max(20, round(self.rows * factor)),
            wire=max(400, round(self.wire * factor)),
            changes=max(4, round(self.changes * factor)),
            latency_seconds=max(5, round(self.latency_seconds * min(1.0, factor))),
            latency_rate=self.latency_rate,
            factor=self.factor * factor,
        )


@attrs.frozen
class Case:
    """One run: a contender on a topic. `batches` limits a slow one; `prefilled` starts from the big table.

    `routed` sends each event to the table that its source names, of which there are so many. `properties`
    are further ones of our sink. `lacks` are columns that the contender cannot know, and does not write.
    """

    name: str
    contender: Contender
    topic: str
    batch_events: int
    upsert: bool = True
    prefilled: bool = False
    batches: int | None = None
    routed: int = 0
    properties: Mapping[str, str] = attrs.field(factory=dict)
    lacks: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """Each case has its own namespace in the shared catalog."""
        return self.name.replace("-", "_")

    @property
    def table(self) -> str:
        """The name that the sink's naming rule gives the topic's table."""
        return f"{self.namespace}.{self.full_topic.replace('.', '_')}"

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables of the case."""
        names = source_tables(self.routed)
        return tuple(f"{self.namespace}.{name}" for name in names) if names else (self.table,)

    @property
    def full_topic(self) -> str:
        """Topic name as a connector with topic prefix `bench` gives it."""
        return topic_name(self.topic)


def topic_name(table: str) -> str:
    """`bench.public.<table>`."""
    return f"bench.public.{table}"


def source_tables(count: int = TABLES) -> list[str]:
    """The source's tables whose events a topic of many has."""
    return [f"orders_{number:03d}" for number in range(count)]


def topic_events(sizes: Sizes) -> dict[str, int]:
    """Events per topic (without the latency run's): the large one holds a warm-up batch and a measured one."""
    return {APPEND: sizes.append, UPSERT: sizes.upsert, LARGE: 2 * sizes.upsert, MANY: 2 * sizes.upsert}


def cases(sizes: Sizes) -> list[Case]:
    """All cases in the order in which they run."""
    append, upsert = -(-sizes.append // APPEND_BATCHES), -(-sizes.upsert // UPSERT_BATCHES)
    return [
        Case("append-ours", "ours", APPEND, append, upsert=False),
        Case("append-from-json", "from-json", APPEND, append, upsert=False),
        Case("append-large-ours", "ours", APPEND, -(-sizes.append // 2), upsert=False),
        Case("upsert-empty-ours", "ours", UPSERT, upsert),
        Case("upsert-empty-forgetful-ours", "ours", UPSERT, upsert, properties=FORGETFUL),
        Case("upsert-empty-undated-ours", "ours", UPSERT, upsert, properties=UNDATED),
        Case("upsert-empty-merge-mor", "merge-mor", UPSERT, upsert),
        Case("upsert-empty-merge-cow", "merge-cow", UPSERT, upsert),
        Case("upsert-full-ours", "ours", UPSERT, upsert, prefilled=True),
        Case("upsert-full-positions-ours", "ours", UPSERT, upsert, prefilled=True, properties=POSITIONS),
        Case("upsert-full-merge-mor", "merge-mor", UPSERT, upsert, prefilled=True, batches=3),
        Case("upsert-full-merge-cow", "merge-cow", UPSERT, upsert, prefilled=True, batches=2),
        Case("upsert-large-ours", "ours", LARGE, sizes.upsert),
        Case("tables-one", "ours", MANY, 2 * upsert),
        Case("tables-ours", "ours", MANY, 2 * upsert, routed=TABLES),
    ]


def chosen(all_cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """The cases whose name matches a pattern (`upsert-*`, `*-ours`) or starts with it; all without patterns."""
    return [case for case in all_cases if matches(case.name, patterns)]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether `name` is wanted."""
    return not patterns or any(fnmatchcase(name, pattern) or name.startswith(pattern) for pattern in patterns)
