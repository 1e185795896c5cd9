"""Tables + limits -> why the next batch has to wait for their maintenance. On the driver; metadata only."""

from __future__ import annotations

import time
from contextlib import suppress

import attrs

from connector.errors import RetriableError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.snapshot_expiry import expire_snapshots
from connector.iceberg.java import map_java_errors
from connector.settings.iceberg.maintenance.back_pressure import BackPressureSettings
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables

_DELETE_FILES = "total-delete-files"
"""What snapshot summaries call the number of live delete files."""


@attrs.define(eq=False)
class BackPressure:
    """Sums up what a sink's own commits add; a table above a limit is read again, at most once per interval."""

    tables: IcebergTables
    limits: BackPressureSettings
    _told: str | None = None
    _due: float = 0.0

    def find_reason(self) -> str | None:
        """Say which tables are above a limit, and which limit; None if batches may begin.

        Cost: nothing without limits; below them no request.
        """
        if not (self.limits.max_snapshots or self.limits.max_delete_files) or time.monotonic() < self._due:
            return self._told
        excess = {name: reason for name in list(self.tables) if (reason := self._find_excess(name))}
        self._told = (
            "; ".join(f"{self.tables.label(name)} has {reason}" for name, reason in sorted(excess.items())) or None
        )
        self._due = time.monotonic() + self.limits.interval_ms / 1000 if self._told else 0.0
        return self._told

    def _find_excess(self, name: str) -> str | None:
        table = self.tables[name].table
        if self._count(table) is None:
            return None
        with suppress(RetriableError):  # then as it was last known
            table.refresh()
        # Snapshots that expire with the sink's own commits would stay for as long as it waits for them to go.
        expire_snapshots(table, self.tables.retention(name), lambda: self.tables.needed_since_ms(name), slack=1)
        return self._count(table)

    def _count(self, table: Table) -> str | None:
        with map_java_errors(f"counting snapshots of {table.name}"):
            snapshots = int(table.java.operations().current().snapshots().size())
            newest = table.java.snapshot(table.branch)
            deletes = "0" if newest is None else newest.summary().get(_DELETE_FILES) or "0"
        return self.limits.find_excess(snapshots, int(deletes))
