"""Connectors that were created, with what was asked of them -> a store, and back at the next start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs
import orjson
import structlog

from connector.errors import CommitRefused, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.state.offset_rows import ConnectorKind, OffsetRows
from connector.runtime.lifecycle import TargetState
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings

_WORKER, _KIND = "icebridge-worker", ConnectorKind("worker", ("target",), exclusive=True)
REQUEST_RETRY_MS = 60_000
"""So long the catalog is tried while a request waits."""
_TARGETS: frozenset[TargetState] = frozenset(("STARTED", "PAUSED", "STOPPED"))


@attrs.frozen
class StoredConnector:
    """A connector's properties, as they were given, and its target state."""

    config: Mapping[str, str] = attrs.field(repr=False)
    target: TargetState = "STARTED"


class ConfigStore(Protocol):
    """Keeps connectors for the next start."""

    def load(self) -> dict[str, StoredConnector]:
        """Return what is kept, by name."""

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keep a connector."""

    def remove(self, name: str) -> None:
        """Keep it no longer."""


class InMemoryConfigStore:
    """A `ConfigStore` that ends with the process: for the one connector of a properties file."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[str, StoredConnector] = {}

    def load(self) -> dict[str, StoredConnector]:
        """Return what is kept, by name."""
        return dict(self._kept)

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keep a connector."""
        self._kept[name] = connector

    def remove(self, name: str) -> None:
        """Keep it no longer."""
        self._kept.pop(name, None)


class IcebergConfigStore:
    """A `ConfigStore` in an Iceberg table, one row per connector; each change is one small commit."""

    def __init__(self, catalog: Catalog, table: str, errors: ErrorSettings) -> None:
        """Open the table; the first connector creates it.

        Raises:
            RetriableError: the catalog stayed away.
        """
        self._table = table
        # Somebody waits for the answer, and others for their turn: not as long as a run may wait.
        limit_ms = REQUEST_RETRY_MS if errors.retry_timeout_ms < 0 else min(errors.retry_timeout_ms, REQUEST_RETRY_MS)
        self._while_asked = attrs.evolve(errors, retry_timeout_ms=limit_ms)
        self._rows = call_with_retries(lambda: OffsetRows(catalog, table, _WORKER, _KIND), errors)
        self._known = self._rows.by_table
        self._is_unsure = self._is_lost = False

    @property
    def _rival(self) -> str:
        return (
            f"another worker keeps its connectors in {self._table}; stop one of the two, give each a table by "
            "config.storage.iceberg.table-name, and start this one again"
        )

    def load(self) -> dict[str, StoredConnector]:
        """Return what is kept, by name; a row that is none comes without properties."""
        return {name: parse_connector(name, text) for name, text in self._known.items()}

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keep a connector.

        Raises:
            FatalError: another worker has the same table.
            RetriableError, CommitUnknown: the catalog stayed away; it is kept as it was before.
        """
        document = {"config": dict(connector.config), "target": connector.target}
        text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
        self._store({**self._known, name: text})

    def remove(self, name: str) -> None:
        """Keep it no longer; raises as `put`."""
        self._store({known: text for known, text in self._known.items() if known != name})

    def _store(self, rows: Mapping[str, str]) -> None:
        if self._is_lost:
            raise FatalError(self._rival)
        call_with_retries(lambda: self._replace(rows), self._while_asked)
        self._known = dict(rows)

    def _replace(self, rows: Mapping[str, str]) -> None:
        if self._is_unsure:
            self._rows.reload()
        # Until it is known: a commit that nobody confirmed may have landed, and what was refused must not stay.
        self._is_unsure = True
        self._rows.forget()
        try:
            self._rows.put(None, rows)
        except CommitRefused as error:
            self._is_lost = True
            raise FatalError(self._rival) from error
        self._is_unsure = False


def parse_connector(name: str, text: str) -> StoredConnector:
    """Read a row; what is none becomes a connector without properties, which then says so."""
    try:
        stored = orjson.loads(text)
        config, target = stored["config"], stored["target"]
        if target in _TARGETS and isinstance(config, dict) and all(isinstance(one, str) for one in config.values()):
            return StoredConnector(config, target)
    except (ValueError, TypeError, KeyError):
        pass
    structlog.get_logger().error("a stored connector cannot be read", connector=name)
    return StoredConnector({}, "STOPPED")
