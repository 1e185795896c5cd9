"""The port of the server: a connector, whatever its kind -> what REST, health, metrics and the page need of it.

`sink_connector` and `source_connector` hold the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs

from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.prometheus.series import MetricSource

Kind = Literal["sink", "source"]


@attrs.frozen
class Check:
    """One thing that readiness depends on, and what there is to say of it; never a secret."""

    name: str
    is_up: bool
    data: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class ConnectorOffset:
    """Kafka Connect's offset of a partition: of a sink's topic-partition, or of a source's table; None: none."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


class Connector(Protocol):
    """A connector of this process. Only methods that are said to may take longer than reading memory."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> Kind:
        """What it is."""

    @property
    def config(self) -> Mapping[str, str]:
        """Its properties as they were given, secrets among them."""

    @property
    def lifecycle(self) -> Lifecycle:
        """Its state, and what may be asked of it."""

    @property
    def metrics(self) -> Sequence[MetricSource]:
        """Its metrics."""

    def start(self) -> None:
        """Begin to live, in a thread of its own."""

    def close(self, timeout_s: float | None) -> bool:
        """Stop for good, and wait for the end of the current batch or step; tell whether it came in so long."""

    def checks(self) -> list[Check]:
        """Return what readiness depends on, by the last look at it."""

    def topics(self) -> list[str]:
        """Return the topics that are read or written."""

    def overview(self) -> dict[str, Any]:
        """Return what the page shows: tables, lag, last batches or steps, dead letters."""

    def sample(self) -> None:
        """Look at the cluster and the catalog, at most some seconds; called on a schedule, in a thread of its own."""

    def offsets(self) -> list[ConnectorOffset]:
        """Read the stored offsets.

        Raises:
            ConnectorError: they cannot be read.
        """

    def alter_offsets(self, offsets: Sequence[ConnectorOffset] | None) -> None:
        """Store other offsets, or forget all with None; the connector is stopped meanwhile.

        Raises:
            RestError: they are not such as this connector has.
            ConnectorError: they cannot be stored.
        """
