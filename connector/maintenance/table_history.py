"""A table's metadata file -> the snapshots of its branches as maintenance sees them. On the driver; metadata only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.catalog.table import Table
from connector.maintenance.expiry_rules import BranchHistory
from connector.maintenance.table_state import SnapshotSummary

_REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"
"""Table property: how long branches and tags last that say nothing of it themselves; Iceberg's."""


def read_history(table: Table) -> list[SnapshotSummary]:
    """Return the snapshots of the branch as the table was last read, newest first.

    Cost: reads the metadata file.

    Raises:
        RetriableError: the store is away.
        FatalError: the file cannot be read.
    """
    return summarize_snapshots(table.ancestors())


def summarize_snapshots(snapshots: Iterable[Snapshot]) -> list[SnapshotSummary]:
    """Return what maintenance takes from snapshots that were read."""
    return [_summary_of(snapshot) for snapshot in snapshots]


def read_branch_histories(table: Table) -> list[BranchHistory]:
    """Return the snapshots of all branches as the table was last read; those of the one that is followed come first.

    Cost: reads the metadata file, once: of a table with 10,000 snapshots that is 10 MB.

    Raises: as `read_history`.
    """
    newest, metadata = table.snapshot_id, table.metadata().metadata
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    own = metadata.refs.get(table.branch)
    others = [(ref.snapshot_id, ref) for ref in _list_other_branches(table, metadata.refs)]
    pinned = _find_pinned(metadata.refs, metadata.properties)
    return [_read_branch(by_id, head, ref, pinned) for head, ref in ((newest, own), *others)]


def _find_pinned(refs: Mapping[str, SnapshotRef], properties: Mapping[str, str]) -> frozenset[int]:
    """Return the snapshots that tags and branches stand at, but for those that come to an end by themselves."""
    if _REF_AGE_PROPERTY in properties:
        return frozenset()
    return frozenset(ref.snapshot_id for ref in refs.values() if ref.max_ref_age_ms is None)


def _list_other_branches(table: Table, refs: Mapping[str, SnapshotRef]) -> list[SnapshotRef]:
    others = (ref for name, ref in refs.items() if name != table.branch)
    return [ref for ref in others if ref.snapshot_ref_type == SnapshotRefType.BRANCH]


def _read_branch(
    by_id: Mapping[int, Snapshot], head: int | None, ref: SnapshotRef | None, pinned: frozenset[int]
) -> BranchHistory:
    snapshots = list(_iter_ancestors(by_id, head))
    if ref is None:
        return BranchHistory(snapshots, pinned=pinned)
    return BranchHistory(snapshots, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep, pinned)


def _iter_ancestors(by_id: Mapping[int, Snapshot], at: int | None) -> Iterator[SnapshotSummary]:
    while at is not None and at in by_id:
        yield _summary_of(by_id[at])
        at = by_id[at].parent_snapshot_id


def _summary_of(snapshot: Snapshot) -> SnapshotSummary:
    told = snapshot.summary
    operation = "" if told is None else str(told.operation.value)
    properties = {} if told is None else told.additional_properties
    is_first = snapshot.parent_snapshot_id is None
    number = snapshot.sequence_number or 0
    return SnapshotSummary(snapshot.snapshot_id, snapshot.timestamp_ms, operation, properties, is_first, number)
