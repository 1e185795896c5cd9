"""A listener that hands each report on to a function."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from connector.runtime.monitoring.listeners import BatchReport


@frozen
class ReportListener:
    """Listens to a sink."""

    tell: Callable[[BatchReport], object]

    def on_batch(self, report: BatchReport) -> None:
        """Hand a batch's report on."""
        self.tell(report)
