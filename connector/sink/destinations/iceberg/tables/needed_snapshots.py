"""Offsets of sources -> since when they need a table's snapshots: those may not expire. On the driver."""

from __future__ import annotations

import time

import attrs
import structlog

from connector.errors import ConnectorError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.maintenance.expiry import find_needed_since_ms
from connector.settings import TableSettings

INTERVAL_S = 60.0
"""So long an answer is kept: what sources need only moves on."""


@attrs.define(eq=False)
class NeededSnapshots:
    """What sources have yet to read of the tables of one sink."""

    _catalog: Catalog
    _settings: TableSettings
    _found: dict[str, tuple[float, int]] = attrs.field(factory=dict, init=False)

    def find_since_ms(self, name: str, table: Table) -> int:
        """Return the time of the oldest snapshot of a table that a source has yet to read; now if there is none.

        Where the offsets cannot be read everything is needed.
        """
        seen_s, known_ms = self._found.get(name, (-INTERVAL_S, 0))
        if time.monotonic() - seen_s >= INTERVAL_S:
            try:
                known_ms = self._read_since_ms(name, table)
            except ConnectorError as error:
                structlog.get_logger().warning("snapshot expiry is postponed", table=table.name, reason=str(error))
                known_ms = 0
            self._found[name] = time.monotonic(), known_ms
        return known_ms

    def _read_since_ms(self, name: str, table: Table) -> int:
        policy = self._settings.maintenance.of(name, table.name).expire
        return find_needed_since_ms(self._catalog, (self._settings.offsets_table, *policy.offset_tables), table)
