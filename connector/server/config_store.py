"""Connectors that were created, with what was asked of them -> a store, and back at the next start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs
import orjson

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.state.offset_rows import ConnectorKind, OffsetRows
from connector.runtime.lifecycle import TargetState
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings

_WORKER, _KIND = "icebridge-worker", ConnectorKind("worker", ("target",))


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
        """Open the table, or create it.

        Raises:
            RetriableError: the catalog stayed away.
        """
        self._errors = errors
        self._rows = call_with_retries(lambda: OffsetRows(catalog, table, _WORKER, _KIND), errors)

    def load(self) -> dict[str, StoredConnector]:
        """Return what is kept, by name."""
        kept = {}
        for name, text in self._rows.by_table.items():
            stored = orjson.loads(text)
            kept[name] = StoredConnector(stored["config"], stored["target"])
        return kept

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keep a connector.

        Raises:
            RetriableError, CommitUnknown: the catalog stayed away.
        """
        document = {"config": dict(connector.config), "target": connector.target}
        text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
        call_with_retries(lambda: self._rows.put(None, {name: text}), self._errors)

    def remove(self, name: str) -> None:
        """Keep it no longer; raises as `put`."""
        self._rows.forget([name])
        call_with_retries(lambda: self._rows.put(None, {}), self._errors)
