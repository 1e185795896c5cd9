"""options -> the producer's cases: which kinds of table get one commit that updates 1 % of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from benchmarks.plan import matches

Mode = Literal["copy-on-write", "merge-on-read"]

NAMESPACE, BASE, PUBLISHED = "lake", "base", "published"
FILES, LARGER = 16, 4
"""Files of a table, and how many times as large the large ones are, with the same files touched."""

UPDATED_EACH, UPDATED_REST = 100, 7
"""Of so many rows one is updated: where `id` leaves this rest. Ids are spread over all files."""

PARTS, PARTITIONS, SNAPSHOTS, POLLS = 5, 4, 10_000, 50
ROUNDS, VIEW_ROUNDS = 3, 2
PUBLISH, IDLE = "source-publish", "source-idle"
PREFIX = "bench"
TOPIC = f"{PREFIX}.{NAMESPACE}.{PUBLISHED}"


@attrs.frozen
class SourceCase:
    """One table whose changes are computed; `view` also measures Spark's changelog view on it."""

    name: str
    version: int
    mode: Mode
    large: bool = False

    @property
    def view(self) -> bool:
        """Spark's changelog view reads copy-on-write tables only."""
        return self.mode == "copy-on-write"

    @property
    def table(self) -> str:
        """The table's name with namespace."""
        return table_name(self.name.replace("-", "_"))


def table_name(name: str) -> str:
    """The name with namespace."""
    return f"{NAMESPACE}.{name}"


def source_cases() -> list[SourceCase]:
    """All cases in the order in which they run."""
    return [
        SourceCase("source-cow-v2", 2, "copy-on-write"),
        SourceCase("source-cow-v3", 3, "copy-on-write"),
        SourceCase("source-mor-v2", 2, "merge-on-read"),
        SourceCase("source-mor-v3", 3, "merge-on-read"),
        SourceCase("source-mor-v2-large", 2, "merge-on-read", large=True),
        SourceCase("source-mor-v3-large", 3, "merge-on-read", large=True),
    ]


def chosen_source(patterns: Sequence[str]) -> tuple[list[SourceCase], bool, bool]:
    """The wanted cases, and whether publishing and the idle poll are wanted."""
    cases = [case for case in source_cases() if matches(case.name, patterns)]
    return cases, matches(PUBLISH, patterns), matches(IDLE, patterns)
