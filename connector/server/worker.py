"""Requests about connectors -> connectors that are created, steered, deleted; what was asked outlives the process.

Kafka Connect calls this a worker, and its part that takes requests a herder; here both are one process. Requests that
change something come one after the other. None waits for a batch: a connector that is replaced or deleted finishes what
is in progress, in the background, and its successor begins after that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from connector.redaction import SecretScope
from connector.runtime.lifecycle import TargetState, describe_error, start_thread
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.server.config_store import ConfigStore, StoredConnector
from connector.server.connectors.port import Connector, ConnectorOffset
from connector.server.connectors.unreadable import UnreadableConnector
from connector.server.errors import RestError
from connector.server.rest.documents import MaskedValue, unmask

MakeConnector = Callable[[str, Mapping[str, str], TargetState], Connector]
STOP_TIMEOUT_S = 60.0
"""How long a connector's batch at hand is waited for before its offsets are changed, and at the end of the process."""

REQUEST_TIMEOUT_S = 90.0
"""How long a request waits for its turn, as in Kafka Connect: others may be waiting for a catalog that is away."""

_TIMED_OUT = "Request timed out. The worker is currently changing another connector, and waits for the catalog"
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
        self._leaving: dict[str, list[threading.Thread]] = {}
        self._secrets: dict[Connector, SecretScope] = {}
        self._lock = threading.Lock()

    def add(self, connector: Connector) -> None:
        """Take a connector in that somebody else starts and stops."""
        self._connectors = {**self._connectors, connector.name: connector}
        for source in connector.metrics:
            self._metrics.add(source)

    @contextmanager
    def starting_stored(self) -> Iterator[None]:
        """Show the connectors that were there when the process ended, and start them after the block.

        Meanwhile nothing can be changed: a request that comes as soon as there is a listener must neither find them
        missing nor make one of their names. One that cannot be read is shown as failed.
        """
        with self._turn():
            revived = [self._revive(name, stored) for name, stored in sorted(self._store.load().items())]
            for connector in revived:
                self.add(connector)
            yield
            for connector in revived:
                connector.start()

    def close(self) -> None:
        """End all connectors, each after its current batch; all of them together are waited for once."""
        for connector in self._connectors.values():
            self._leave(connector)
        end = time.monotonic() + STOP_TIMEOUT_S
        for thread in [one for threads in self._leaving.values() for one in threads]:
            thread.join(max(0.0, end - time.monotonic()))

    @property
    def takes_connectors(self) -> bool:
        """Whether connectors are created by requests (`icebridge serve`), or there is the one of a properties file."""
        return self._make is not None

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
        with self._turn():
            if name in self._connectors:
                raise RestError(409, f"Connector {name} already exists")
            return self._replace(name, _unmask(config, {}), target)

    def configure(self, name: str, config: Mapping[str, str]) -> tuple[Connector, bool]:
        """Give a connector other properties, which restarts it, or create it; tell whether it is new."""
        with self._turn():
            old = self._connectors.get(name)
            if old is None:
                return self._replace(name, _unmask(config, {}), "STARTED"), True
            return self._replace(name, _unmask(config, old.config), old.lifecycle.target), False

    def patch(self, name: str, changes: Mapping[str, str | None]) -> Connector:
        """Change some of a connector's properties; None removes one."""
        with self._turn():
            old = self.get(name)
            removed = {key for key, text in changes.items() if text is None}
            given = {key: text for key, text in changes.items() if text is not None}
            merged = {**old.config, **_unmask(given, old.config)}
            kept = {key: text for key, text in merged.items() if key not in removed}
            return self._replace(name, kept, old.lifecycle.target)

    def delete(self, name: str) -> None:
        """Forget a connector, which ends after its current batch; its tables and offsets stay."""
        with self._turn():
            connector = self.get(name)
            self._refuse_fixed()
            self._store.remove(name)
            self._drop(connector)

    def steer(self, name: str, target: TargetState) -> None:
        """Have a connector run, pause or stop; it does so after its current batch."""
        with self._turn():
            connector = self.get(name, "Unknown connector {}")
            if self._make is not None:
                self._store.put(name, StoredConnector(connector.config, target))
            ask = {"STARTED": "resume", "PAUSED": "pause", "STOPPED": "halt"}[target]
            getattr(connector.lifecycle, ask)()

    def restart(self, name: str, *, only_failed: bool = False) -> Connector:
        """Restart a connector; with `only_failed` only where it has failed."""
        with self._turn():
            connector = self.get(name, "Unknown connector: {}")
            if isinstance(connector, UnreadableConnector):
                stored = StoredConnector(connector.config, connector.lifecycle.target)
                return self._succeed(self._revive(name, stored))
            if not only_failed or connector.lifecycle.state == "FAILED":
                connector.lifecycle.restart()
            return connector

    def alter_offsets(self, name: str, offsets: Sequence[ConnectorOffset] | None) -> None:
        """Store other offsets of a stopped connector, or forget all of them; 400 where it is not stopped."""
        connector = self.get(name)
        if connector.lifecycle.target != "STOPPED":
            raise RestError(400, _NOT_STOPPED.format(name))
        if isinstance(connector, UnreadableConnector):
            connector.alter_offsets(offsets)
            return
        # Not while holding the lock: others need not wait for this one's batch.
        is_stopped = connector.lifecycle.wait_for("STOPPED", STOP_TIMEOUT_S)
        with self._turn():
            if self.get(name) is not connector or connector.lifecycle.target != "STOPPED":
                raise RestError(400, _NOT_STOPPED.format(name))
            if not is_stopped or connector.lifecycle.state != "STOPPED":
                raise RestError(409, _BUSY.format(name))
            connector.alter_offsets(offsets)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Change something alone; 500 where the turn does not come, and nothing is changed."""
        if not self._lock.acquire(timeout=REQUEST_TIMEOUT_S):
            raise RestError(500, _TIMED_OUT)
        try:
            yield
        finally:
            self._lock.release()

    def _revive(self, name: str, stored: StoredConnector) -> Connector:
        """Make a connector that was stored; one whose properties cannot be used any more says why."""
        assert self._make is not None
        with SecretScope() as secrets:
            try:
                connector = self._make(name, stored.config, stored.target)
            except Exception as error:  # noqa: BLE001 - one that cannot start does not stop others
                reason = describe_error(error)
                structlog.get_logger().error("connector cannot start", connector=name, reason=reason)
                connector = UnreadableConnector(name, stored.config, stored.target, reason)
        self._secrets[connector] = secrets
        return connector

    def _replace(self, name: str, config: Mapping[str, str], target: TargetState) -> Connector:
        self._refuse_fixed()
        assert self._make is not None
        with SecretScope() as secrets:
            try:
                connector = self._make(name, config, target)
                self._store.put(name, StoredConnector(dict(config), target))
            except BaseException:
                secrets.forget()
                raise
        self._secrets[connector] = secrets
        return self._succeed(connector)

    def _succeed(self, connector: Connector) -> Connector:
        """Put a connector in the place of the one of its name, if there is one; it starts when that has ended."""
        if connector.name in self._connectors:
            self._drop(self._connectors[connector.name])
        before = [one for one in self._leaving.pop(connector.name, []) if one.is_alive()]
        self.add(connector)
        if not before:
            connector.start()
            return connector
        self._leaving[connector.name] = before

        def start() -> None:
            for thread in before:
                thread.join()
            connector.start()

        start_thread(start, f"start-{connector.name}")
        return connector

    def _drop(self, connector: Connector) -> None:
        self._connectors = {name: one for name, one in self._connectors.items() if one is not connector}
        for source in connector.metrics:
            self._metrics.remove(source)
        self._leave(connector)

    def _leave(self, connector: Connector) -> None:
        """Have a connector end; its thread is waited for by whoever comes next."""
        ending = start_thread(lambda: self._end(connector), f"end-{connector.name}")
        self._leaving.setdefault(connector.name, []).append(ending)

    def _end(self, connector: Connector) -> None:
        connector.close(None)
        secrets = self._secrets.pop(connector, None)
        if secrets is not None:
            secrets.forget()

    def _refuse_fixed(self) -> None:
        if self._make is None:
            raise RestError(405, "this process runs the connector of its properties files; use icebridge serve")


def _unmask(config: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the secrets for which masks stand; 400 for a mask of something else."""
    try:
        return unmask(config, before)
    except MaskedValue as error:
        raise RestError(400, str(error)) from error
