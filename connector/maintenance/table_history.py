"""A table's metadata file -> the snapshots of its branches as maintenance sees them. On the driver; metadata only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.catalog.table import Table
from connector.maintenance.table_state import SnapshotSummary


@attrs.frozen
class BranchHistories:
    """The snapshots of the branch that is followed, and of each other, newest first.

    `own_ages_ms` tells how old snapshots get by the retention of the branch, and of each other: None by the table's
    properties. `own_least` tells how many snapshots of the branch its retention keeps.
    """

    ancestors: Sequence[SnapshotSummary]
    others: Sequence[Sequence[SnapshotSummary]] = ()
    own_ages_ms: Sequence[int | None] = ()
    own_least: int | None = None


def read_history(table: Table) -> list[SnapshotSummary]:
    """Return the snapshots of the branch as the table was last read, newest first.

    Cost: reads the metadata file.

    Raises:
        RetriableError: the store is away.
        FatalError: the file cannot be read.
    """
    return [_summary_of(snapshot) for snapshot in table.ancestors()]


def read_branch_histories(table: Table) -> BranchHistories:
    """Return the snapshots of all branches as the table was last read.

    Cost: reads the metadata file, once: of a table with 10,000 snapshots that is 10 MB.

    Raises: as `read_history`.
    """
    newest, metadata = table.snapshot_id, table.metadata().metadata
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    others = [ref for name, ref in metadata.refs.items() if _is_other_branch(table, name, ref)]
    own = metadata.refs.get(table.branch)
    return BranchHistories(
        list(_iter_ancestors(by_id, newest)),
        [list(_iter_ancestors(by_id, ref.snapshot_id)) for ref in others],
        [None if ref is None else ref.max_snapshot_age_ms for ref in (own, *others)],
        None if own is None else own.min_snapshots_to_keep,
    )


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
