"""A table's metadata file -> the snapshots of its branch as maintenance sees them. On the driver; metadata only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
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


def read_other_branches(table: Table) -> list[list[SnapshotSummary]]:
    """Return the same of each other branch.

    Cost, Raises: as `read_history`.
    """
    metadata = table.metadata().metadata
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    heads = (ref.snapshot_id for name, ref in metadata.refs.items() if _is_other_branch(table, name, ref))
    return [list(_iter_ancestors(by_id, head)) for head in heads]


def read_own_ages_ms(table: Table) -> list[int | None]:
    """Return how old snapshots get by the retention of the branch, and of each other: None by the table's properties.

    Cost, Raises: as `read_history`.
    """
    refs = table.metadata().metadata.refs
    others = (ref for name, ref in refs.items() if _is_other_branch(table, name, ref))
    own = refs.get(table.branch)
    return [None if ref is None else ref.max_snapshot_age_ms for ref in (own, *others)]


def _is_other_branch(table: Table, name: str, ref: SnapshotRef) -> bool:
    return ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != table.branch


def _iter_ancestors(by_id: Mapping[int, Snapshot], at: int | None) -> Iterator[SnapshotSummary]:
    while at is not None and at in by_id:
        yield _summary_of(by_id[at])
        at = by_id[at].parent_snapshot_id


def _summary_of(snapshot: Snapshot) -> SnapshotSummary:
    told = snapshot.summary
    operation = "" if told is None else str(told.operation.value)
    properties = {} if told is None else told.additional_properties
    return SnapshotSummary(snapshot.snapshot_id, snapshot.timestamp_ms, operation, properties)
