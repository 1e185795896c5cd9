"""Requests about connectors -> connectors that are created, steered, deleted; what was asked outlives the process.

Kafka Connect calls this a worker, and its part that takes requests a herder; here both are one process. Requests that
change something come one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import structlog

from connector.errors import ConnectorError
from connector.redaction import MASK
from connector.runtime.lifecycle import TargetState, describe_error
from connector.runtime.monitoring.exposition import MetricsRegistry
from connector.server.config_store import ConfigStore, StoredConnector
from connector.server.errors import RestError
from connector.server.port import Connector, ConnectorOffset

MakeConnector = Callable[[str, Mapping[str, str], TargetState], Connector]
STOP_TIMEOUT_S = 60.0
"""How long a connector's batch at hand is waited for before it is replaced or its offsets are changed."""

_NOT_STOPPED = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/{}/stop' endpoint"
)
_BUSY = "Cannot complete request momentarily: connector {} has not finished its batch yet; try again"


class Worker:
    """The connectors of one process. Methods raise RestError for what cannot be done."""

    def __init__(self, make: MakeConnector | None, store: ConfigStore, metrics: MetricsRegistry) -> None:
        """Begin without connectors.

        Args:
            make: makes a connector of a name, properties and target state; raises ConfigError. None where the
                connectors are what they are: those of a properties file.
            store: keeps them for the next start.
            metrics: serves their metrics.
        """
        self._make, self._store, self._metrics = make, store, metrics
        self._connectors: dict[str, Connector] = {}
        self._lock = threading.Lock()

    def add(self, connector: Connector) -> None:
        """Take a connector in that somebody else starts and stops."""
        self._connectors = {**self._connectors, connector.name: connector}
        for source in connector.metrics:
            self._metrics.add(source)

    def start_stored(self) -> None:
        """Start the connectors that were there when the process ended; one that cannot start does not stop others."""
        assert self._make is not None
        for name, stored in sorted(self._store.load().items()):
            try:
                connector = self._make(name, stored.config, stored.target)
            except ConnectorError as error:
                structlog.get_logger().error("connector cannot start", connector=name, reason=describe_error(error))
                continue
            self.add(connector)
            connector.start()

    def close(self) -> None:
        """End all connectors, each after its batch at hand."""
        threads = [threading.Thread(target=each.close, args=(STOP_TIMEOUT_S,)) for each in self._connectors.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @property
    def names(self) -> list[str]:
        """The names of the connectors, sorted."""
        return sorted(self._connectors)

    def find(self, name: str) -> Connector | None:
        """Return a connector, None where there is none of that name."""
        return self._connectors.get(name)

    def get(self, name: str, missing: str = "Connector {} not found") -> Connector:
        """Return a connector; 404 where there is none, in the words of `missing`."""
        connector = self._connectors.get(name)
        if connector is None:
            raise RestError(404, missing.format(name))
        return connector

    def create(self, name: str, config: Mapping[str, str], target: TargetState = "STARTED") -> Connector:
        """Create a connector and start it; 409 where one has the name, ConfigError for its properties."""
        with self._lock:
            if name in self._connectors:
                raise RestError(409, f"Connector {name} already exists")
            return self._replace(name, config, target)

    def configure(self, name: str, config: Mapping[str, str]) -> tuple[Connector, bool]:
        """Give a connector other properties, which restarts it, or create it; tell whether it is new."""
        with self._lock:
            old = self._connectors.get(name)
            if old is None:
                return self._replace(name, config, "STARTED"), True
            kept = {key: old.config.get(key, text) if text == MASK else text for key, text in config.items()}
            return self._replace(name, kept, old.lifecycle.target), False

    def patch(self, name: str, changes: Mapping[str, str | None]) -> Connector:
        """Change some of a connector's properties; None removes one."""
        with self._lock:
            old = self.get(name)
            merged = {**old.config, **{key: text for key, text in changes.items() if text != MASK}}
            config = {key: text for key, text in merged.items() if text is not None}
            return self._replace(name, config, old.lifecycle.target)

    def delete(self, name: str) -> None:
        """End a connector after its batch at hand; its tables and offsets stay."""
        with self._lock:
            connector = self.get(name)
            self._refuse_fixed()
            self._store.remove(name)
            self._drop(connector)

    def steer(self, name: str, target: TargetState) -> None:
        """Have a connector run, pause or stop; it does so after its batch at hand."""
        with self._lock:
            connector = self.get(name, "Unknown connector {}")
            if self._make is not None:
                self._store.put(name, StoredConnector(connector.config, target))
            ask = {"STARTED": "resume", "PAUSED": "pause", "STOPPED": "halt"}[target]
            getattr(connector.lifecycle, ask)()

    def restart(self, name: str, *, only_failed: bool = False) -> Connector:
        """Restart a connector; with `only_failed` only where it has failed."""
        with self._lock:
            connector = self.get(name, "Unknown connector: {}")
            if not only_failed or connector.lifecycle.state == "FAILED":
                connector.lifecycle.restart()
            return connector

    def alter_offsets(self, name: str, offsets: Sequence[ConnectorOffset] | None) -> None:
        """Store other offsets of a stopped connector, or forget all of them; 400 where it is not stopped."""
        with self._lock:
            connector = self.get(name)
            if connector.lifecycle.target != "STOPPED":
                raise RestError(400, _NOT_STOPPED.format(name))
            if not connector.lifecycle.wait_for("STOPPED", STOP_TIMEOUT_S):
                raise RestError(409, _BUSY.format(name))
            connector.alter_offsets(offsets)

    def _replace(self, name: str, config: Mapping[str, str], target: TargetState) -> Connector:
        self._refuse_fixed()
        assert self._make is not None
        made = self._make(name, config, target)
        self._store.put(name, StoredConnector(dict(config), target))
        if name in self._connectors:
            self._drop(self._connectors[name])
        self.add(made)
        made.start()
        return made

    def _drop(self, connector: Connector) -> None:
        connector.close(STOP_TIMEOUT_S)
        self._connectors = {name: one for name, one in self._connectors.items() if one is not connector}
        for source in connector.metrics:
            self._metrics.remove(source)

    def _refuse_fixed(self) -> None:
        if self._make is None:
            raise RestError(405, "this process runs the connector of its properties files; use icebridge serve")
