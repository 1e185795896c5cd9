"""Histories of topics that get partitions, in which the product was wrong: a world, and what happens in it."""

from __future__ import annotations

from typing import Any

from tests.simulation.steps import Batch, KafkaStep, SourceStep, World

FOUND_GROWTH: dict[str, tuple[World, tuple[Any, ...]]] = {
    # The read was the last of its partition, and told less than the delete in the partition that the key had left.
    "a topic grows, and a row is read in its new partition": (
        World(documents=True),
        (
            SourceStep("commits", 262),
            SourceStep("commits", 284),
            Batch(0, 343),
            SourceStep("grow", 857),
            SourceStep("commits", 286),
            SourceStep("read", 892),
        ),
    ),
    # Limits of all partitions counted from the first commit on that knew the new ones, not in the batch before it.
    "a topic grows, and the same batch has the repetition of a restart": (
        World(),
        (
            SourceStep("commits", 291),
            Batch(0, 1, whole=True),
            SourceStep("grow", 754),
            SourceStep("restart", 560),
            Batch(0, 741),
        ),
    ),
    # What the old partition still had was taken for newer than all that came again in the new one.
    "a topic grows while its old partition is behind, and a restart comes first in the new one": (
        World(numbered=True, parallelism=2),
        (
            SourceStep("commits", 501),
            SourceStep("commit", 735),
            Batch(0, 0, whole=True),
            SourceStep("commit", 638),
            SourceStep("grow", 338),
            SourceStep("restart", 158),
            Batch(0, 2, grid=1),
            Batch(0, 3, grid=1),
            Batch(0, 7, grid=1),
        ),
    ),
    # A tombstone alone has no order across partitions (docs/guarantees.md): retention takes none from its delete.
    "a topic grows, and retention ends in front of a tombstone": (
        World(partitions=2),
        (
            SourceStep("commits", 101),
            SourceStep("commit", 162),
            Batch(0, 4, grid=0),
            SourceStep("grow", 269),
            SourceStep("commit", 849),
            KafkaStep("retain", 972),
        ),
    ),
}
