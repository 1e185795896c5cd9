"""A table + what was noted of it -> where a connector stands there, or why it cannot go on. On the driver.

The newest snapshot that the connector wrote says where it stands. When that has expired, the offsets table takes over;
but a table that lost it in another way has lost rows too: that stops, and is never passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyiceberg.table.snapshots import Snapshot

from connector.errors import GapError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import LastCommit, parse_last_commit
from connector.iceberg.commit.commit_summary import LOST_COMMIT_REMEDY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets


@attrs.frozen
class StoredCommit:
    """What the offsets table says of a table: the connector's position there, and which snapshot it came with."""

    position: KafkaOffsets
    uuid: str = ""
    snapshot_id: int | None = None
    sequence_number: int = 0


def check_ancestry(table: Table, name: str, noted: StoredCommit | None) -> LastCommit:
    """Return where a connector stands in a table; empty when it never wrote there. Reads the metadata file.

    Raises:
        GapError: the table was dropped and made again, or rolled back, since the connector wrote to it.
    """
    if noted is not None and noted.uuid and noted.uuid != table.uuid:
        raise GapError(
            f"table {table.name} was dropped and made again since connector {name} wrote to it: rows that were in it "
            f"are gone; {LOST_COMMIT_REMEDY}"
        )
    ancestors = list(table.ancestors())
    for snapshot in ancestors:
        found = parse_last_commit(snapshot, name)
        if found is not None:
            return found
    if noted is None:
        return LastCommit()
    if is_rolled_back(ancestors, noted.sequence_number):
        raise GapError(
            f"table {table.name} does not have the snapshot {noted.snapshot_id} any more that connector {name} wrote, "
            f"nor has it expired: the table was rolled back or replaced; {LOST_COMMIT_REMEDY}"
        )
    return LastCommit(noted.position)


def is_rolled_back(ancestors: Sequence[Snapshot], sequence_number: int) -> bool:
    """Tell whether a snapshot of that sequence number, which is no ancestor, was left and did not expire.

    Args:
        ancestors: newest first; the oldest has a parent where older ones have expired.
        sequence_number: of the missing snapshot.
    """
    if not ancestors or ancestors[-1].parent_snapshot_id is None:
        return True
    return (ancestors[0].sequence_number or 0) < sequence_number
