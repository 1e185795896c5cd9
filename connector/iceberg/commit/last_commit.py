"""A table's snapshots -> what the newest one that a connector wrote says of it. On the driver.

Where that one has expired, what was known of it before holds. A table that lost it in another way has lost rows too:
that stops, and is never passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from pyiceberg.table.snapshots import Snapshot

from connector.errors import GapError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import COMMIT_ID, CONNECTOR_NAME, LOST_COMMIT_REMEDY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets


@attrs.frozen
class LastCommit:
    """A connector's newest commit to a table, as the table or the offsets table tells it.

    `commit_id` is None where the connector never wrote there, or its commit has expired; `sequence_number` is that of
    the snapshot, 0 where nobody knows it (tables of format 1 have none).
    """

    position: KafkaOffsets = KafkaOffsets()
    commit_id: str | None = None
    sequence_number: int = 0

    @property
    def is_none(self) -> bool:
        """Whether no commit is known."""
        return self.commit_id is None and not self.position.offsets


def read_last_commit(table: Table, name: str) -> LastCommit | None:
    """Return what the newest ancestor that this connector wrote says; None when there is none."""
    snapshot = find_newest_snapshot(table, name)
    return None if snapshot is None else parse_last_commit(snapshot, name)


def find_last_commit(table: Table, name: str, before: LastCommit) -> LastCommit:
    """Return where a connector stands in a table, whose commit was `before` when it was looked at last.

    Raises:
        GapError: that commit is gone from the table's history, and has not expired.
    """
    found = read_last_commit(table, name)
    if found is not None and not _is_older(found, before):
        return found
    if found is not None or not (before.is_none or _has_expired(table, before)):
        raise GapError(
            f"table {table.name} does not have the newest commit of connector {name} any more, nor has that expired: "
            f"the table was rolled back or replaced; {LOST_COMMIT_REMEDY}"
        )
    return attrs.evolve(before, commit_id=None)


def _has_expired(table: Table, before: LastCommit) -> bool:
    ancestors = list(table.ancestors())
    if not ancestors:
        return False
    oldest = ancestors[-1]
    return not is_rolled_back(oldest.parent_snapshot_id, oldest.sequence_number or 0, before.sequence_number)


def _is_older(found: LastCommit, before: LastCommit) -> bool:
    if found.sequence_number and before.sequence_number:
        return found.sequence_number < before.sequence_number
    return bool(found.position.behind(before.position))


def is_rolled_back(parent: int | None, sequence_number: int, missing: int) -> bool:
    """Tell whether a snapshot that is no ancestor was left, and did not expire.

    What expired is older than everything that is left of the branch, and the oldest of that still names a parent.

    Args:
        parent: of the oldest ancestor that is left.
        sequence_number: of the same.
        missing: the sequence number of the snapshot that is not there.
    """
    return parent is None or sequence_number < missing


def parse_last_commit(snapshot: Snapshot, name: str) -> LastCommit | None:
    """Return what a snapshot says, None when this connector did not write it."""
    summary = snapshot_summary(snapshot)
    position = KafkaOffsets.from_summary(summary, name)
    return None if position is None else LastCommit(position, summary.get(COMMIT_ID), snapshot.sequence_number or 0)


def find_newest_snapshot(table: Table, name: str) -> Snapshot | None:
    """Return the newest ancestor that this connector wrote."""
    return next((one for one in table.ancestors() if snapshot_summary(one).get(CONNECTOR_NAME) == name), None)


def snapshot_summary(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a snapshot's summary, the operation left out."""
    return snapshot.summary.additional_properties if snapshot.summary else {}
