"""options -> cases: every contender on the two topics, as often as there are rounds, one after the other in turns."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from benchmarks.plan import APPEND, UPSERT, Case, Sizes, chosen

APPEND_EVENTS, UPSERT_EVENTS, KEYS = 8_000_000, 5_000_000, 1_000_000
APPEND_BATCH, UPSERT_BATCH = 500_000, 250_000
LEAST_BATCHES = 4
"""Small runs of ours and of Spark have as many batches all the same, so that something is left when the first is left
out. What has fewer commits has no warm figures: Flink and Kafka Connect commit by the clock, and most of what their
second commit holds was read before the first one was visible.
"""

COMMIT_MS = 10_000
"""Flink's checkpoints and the commits of Kafka Connect's sink."""

HEAP = "2g"
CORES = 2


def peer_sizes(append: int, upsert: int, keys: int) -> Sizes:
    """Sizes without a prefilled table: as many rows as keys."""
    return Sizes(append=append, upsert=upsert, keys=keys, rows=keys)


def peer_cases(sizes: Sizes) -> list[Case]:
    """Each contender once. `debezium-json` does not tell Flink an event's operation."""
    append = min(APPEND_BATCH, -(-sizes.append // LEAST_BATCHES))
    upsert = min(UPSERT_BATCH, -(-sizes.upsert // LEAST_BATCHES))
    return [
        Case("append-ours", "ours", APPEND, append, upsert=False),
        Case("append-flink", "flink", APPEND, append, upsert=False),
        Case("append-connect", "connect", APPEND, append, upsert=False),
        Case("append-from-json", "from-json", APPEND, append, upsert=False),
        Case("upsert-ours", "ours", UPSERT, upsert),
        Case("upsert-flink", "flink", UPSERT, upsert, lacks=("__op",)),
        Case("upsert-merge-mor", "merge-mor", UPSERT, upsert),
    ]


def turns(cases: Sequence[Case], rounds: int, only: Sequence[str]) -> list[Case]:
    """The wanted cases, `rounds` times over; each run has a table of its own."""
    wanted = chosen(cases, only)
    return [attrs.evolve(case, name=f"{case.name}-{number}") for number in range(1, rounds + 1) for case in wanted]


def without_round(name: str) -> str:
    """The case that a run is one of."""
    return name.rpartition("-")[0]
