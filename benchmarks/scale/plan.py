"""sizes -> pairs of runs: columns, size of values, partitions of the topic, tables, files of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from benchmarks.plan import Case, matches

Unit = Literal["cells", "bytes", "events"]
BATCHES = 4
TOUCHED = 50
"""Partitions of the table that the events belong to, however many it has."""

PARTITION_VALUES, FILE_ROWS = 2_000, 20_000


@attrs.frozen
class Load:
    """A topic: events over keys, each with an id, its partition, and columns of numbers and texts in turns."""

    events: int
    keys: int
    columns: int = 8
    text_bytes: int = 12
    partitions: int = 4
    tables: int = 0
    files: int = 0

    @property
    def amounts(self) -> dict[Unit, int]:
        """How much the topic holds of what a cost may be divided by."""
        texts = self.columns // 2
        values = self.events * (texts * self.text_bytes + (self.columns - texts) * 8)
        return {"cells": self.events * self.columns, "bytes": values, "events": self.events}


@attrs.frozen
class Growth:
    """A pair of loads, what their cost is divided by, and how many times as much that of the large one may be."""

    name: str
    small: Load
    large: Load
    unit: Unit
    limit: float

    def cases(self) -> tuple[tuple[Case, Load], tuple[Case, Load]]:
        """The two runs."""
        return self._case("small", self.small), self._case("large", self.large)

    def _case(self, size: str, load: Load) -> tuple[Case, Load]:
        name = f"{self.name}-{size}"
        topic = name.replace("-", "_")
        batch = -(-load.events // BATCHES)
        return Case(name, "ours", topic, batch, prefilled=load.files > 0, routed=load.tables), load


def growths(factor: float) -> list[Growth]:
    """All pairs, at a fraction of their sizes. The large one of columns and values has as many cells and bytes."""

    def load(
        events: int, columns: int = 8, text_bytes: int = 12, partitions: int = 4, tables: int = 0, files: int = 0
    ) -> Load:
        count = max(200, round(events * factor))
        return Load(count, max(20, count // 5), columns, text_bytes, partitions, tables, files)

    many = min(1.0, factor)
    files, tables = max(2 * TOUCHED, round(5_000 * many)), max(20, round(1_000 * many))
    return [
        Growth("scale-columns", load(200_000, columns=20), load(8_000, columns=500), "cells", 1.5),
        Growth("scale-values", load(20_000, columns=2, text_bytes=10_000), load(200, 2, 1_000_000), "bytes", 1.5),
        Growth("scale-partitions", load(400_000), load(400_000, partitions=200), "events", 1.5),
        Growth("scale-tables", load(400_000, tables=tables // 10), load(400_000, tables=tables), "events", 10.0),
        Growth("scale-files", load(400_000, files=TOUCHED), load(400_000, files=files), "events", 1.3),
    ]


def chosen_growths(factor: float, only: Sequence[str]) -> list[Growth]:
    """The pairs that are wanted, by the name of the pair."""
    return [growth for growth in growths(factor) if matches(growth.name, only)]
