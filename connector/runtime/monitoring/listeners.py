"""What a connector did -> the listeners that show, log or count it: one report per step, handed over whole."""

from __future__ import annotations

from typing import Literal, Protocol

import attrs

StepKind = Literal["part read", "snapshot published", "snapshot skipped"]


@attrs.frozen
class StepReport:
    """One step of a captured table.

    `what` happened for which snapshot, in how many seconds; `operation` is the one in the snapshot's summary. Of an
    initial snapshot this is part `part` of `parts`.
    """

    table: str
    what: StepKind
    snapshot_id: int
    seconds: float
    operation: str = ""
    part: int = 0
    parts: int = 0


class SourceListener(Protocol):
    """Hears of each step of a source."""

    def on_step(self, report: StepReport) -> None:
        """Take note of a step whose changes are acknowledged and whose offset is stored."""
