"""Histories of tables whose dedup column is not the source's time in nanoseconds, in which the product was wrong: a
world, and what happens in it.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.steps import Batch, Dedup, SourceStep, World

_OTHERS: tuple[Dedup, ...] = ("__source_ts_ms", "__ts_ns", "__source_lsn")
# The truncate took every row that was there.
_LATER = (
    SourceStep("commit", 168),
    Batch(0, 0, whole=True),
    SourceStep("truncate", 534),
    SourceStep("commit", 84),
    Batch(0, 6, grid=1),
)
# What a truncate is compared with was not stored.
_EARLIER = (SourceStep("commits", 961), SourceStep("truncate", 907), Batch(0, 2, grid=2))

FOUND_ORDERS: dict[str, tuple[World, tuple[Any, ...]]] = {
    **{
        f"a truncate, and {which} in another partition, by {dedup}, {'marked' if keep else 'deleted'}": (
            World(partitions=2, dedup=dedup, keep_deletes=keep),
            steps,
        )
        for which, steps in (("a row that came later", _LATER), ("rows from before", _EARLIER))
        for dedup in _OTHERS
        for keep in (False, True)
    },
    # The read has the place of its snapshot: it was taken for later than what came behind it.
    "a row is read and deleted, by places": (
        World(dedup="__source_lsn"),
        (SourceStep("commit", 497), SourceStep("read", 514), SourceStep("commit", 464)),
    ),
    "a row that was read is in the table, and changes, by places": (
        World(dedup="__source_lsn"),
        (
            SourceStep("commit", 497),
            SourceStep("read", 514),
            Batch(0, 0, whole=True),
            SourceStep("commit", 464),
        ),
    ),
}
