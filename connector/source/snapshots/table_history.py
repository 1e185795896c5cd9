"""A table's snapshots -> what the decision needs: the head at each poll, the history when it is asked for."""

from __future__ import annotations

from typing import Any

from connector.errors import FatalError
from connector.iceberg.catalog.snapshot_schema import check_format_version
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.source.snapshots.next_step import Ancestor, SnapshotLine, TableHead


class TableGoneError(FatalError):
    """The table that was read was dropped; another one may have its name."""


def read_head(table: Table, snapshots: SnapshotHistory) -> TableHead:
    """Poll a table: one request to its catalog.

    Raises:
        NoBranchError: it has no such branch.
        FatalError: a v1 table, or it was dropped.
        RetriableError: the catalog is away.
    """
    newest = snapshots.poll()
    check_format_version(table)
    return TableHead(table.uuid, newest)


def read_history(snapshots: SnapshotHistory) -> SnapshotLine:
    """Return the history as of the last poll."""
    return SnapshotLine(tuple(parse_ancestor(one) for one in snapshots.ancestors()), snapshots.retained().keys())


def parse_ancestor(snapshot: dict[str, Any]) -> Ancestor:
    """Read a snapshot from Iceberg's JSON (spec, "Snapshots")."""
    return Ancestor(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot.get("sequence-number", 0),
        timestamp_ms=snapshot["timestamp-ms"],
        operation=snapshot.get("summary", {}).get("operation", ""),
    )
