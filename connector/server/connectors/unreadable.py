"""A stored connector whose properties cannot be used any more -> one that failed, and says why, until they can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connector.errors import FatalError
from connector.runtime.lifecycle import Lifecycle, TargetState
from connector.runtime.monitoring.prometheus.series import MetricSource
from connector.server.connectors.port import Check, ConnectorOffset, Kind
from connector.settings.source.settings import is_source

_REMEDY = "correct its properties (PUT /connectors/NAME/config), or delete it"


class UnreadableConnector:
    """A `Connector` without settings: it can be looked at, given other properties, restarted, and deleted."""

    def __init__(self, name: str, config: Mapping[str, str], target: TargetState, reason: str) -> None:
        """Keep what is known, and why it is not more."""
        self.name, self.config = name, config
        self.kind: Kind = "source" if is_source([], config) else "sink"
        self.lifecycle = Lifecycle(target)
        self.lifecycle.state, self.lifecycle.error = "FAILED", reason
        self.lifecycle.starts = self.lifecycle.failures = 1
        self.lifecycle.has_task = True  # the reason is told of a task, also of one that was stopped
        self.metrics: Sequence[MetricSource] = ()

    def start(self) -> None:
        """Do nothing: there is nothing to run."""

    def close(self, timeout_s: float | None) -> bool:  # noqa: ARG002 - nothing runs
        """Tell that nothing runs."""
        return True

    def checks(self) -> list[Check]:
        """Return none: there is nothing to depend on."""
        return []

    def topics(self) -> list[str]:
        """Return none: they are not known."""
        return []

    def overview(self) -> dict[str, Any]:
        """Return what the page shows: nothing happened."""
        nothing: dict[str, Any] = {"lag": {}, "tables": {}, "recent": [], "dead_letters": {}, "snapshots": {}}
        return {**nothing, "per_minute": [0] * 60, "last_dead_letters": [], "dead_letter_topic": ""}

    def sample(self) -> None:
        """Look at nothing."""

    def offsets(self) -> list[ConnectorOffset]:
        """Raise FatalError: where they are is not known."""
        raise FatalError(f"connector {self.name} cannot be read: {self.lifecycle.error}; {_REMEDY}")

    def alter_offsets(self, offsets: Sequence[ConnectorOffset] | None) -> None:  # noqa: ARG002
        """Raise FatalError: where they are is not known."""
        raise FatalError(f"connector {self.name} cannot be read: {self.lifecycle.error}; {_REMEDY}")
