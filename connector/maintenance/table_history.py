"""A table's metadata file -> the snapshots of its branch as maintenance sees them. On the driver; metadata only."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.catalog.table import Table
from connector.maintenance.table_state import SnapshotSummary


def read_history(table: Table) -> list[SnapshotSummary]:
    """Return the snapshots of the branch as the table was last read, newest first.

    Cost: reads the metadata file.

    Raises:
        RetriableError: the store is away.
        FatalError: the file cannot be read.
    """
    return [_summary_of(snapshot) for snapshot in table.ancestors()]


def _summary_of(snapshot: Snapshot) -> SnapshotSummary:
    told = snapshot.summary
    operation = "" if told is None else str(told.operation.value)
    properties = {} if told is None else told.additional_properties
    return SnapshotSummary(snapshot.snapshot_id, snapshot.timestamp_ms, operation, properties)
