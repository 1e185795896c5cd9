"""Histories that were run -> a line of a tally."""

from __future__ import annotations

from pathlib import Path

import attrs

from tests.harness.tally import add_line


@attrs.frozen
class Tally:
    """One run: its first seed, how many histories, how many of them were wrong, seconds, and whose they were."""

    first_seed: int
    histories: int
    wrong: int
    seconds: float
    of: str = "sink"

    def add_to(self, file: Path) -> None:
        """Append it."""
        add_line(file, {**attrs.asdict(self), "seconds": round(self.seconds, 1)})
