"""A table + what was noted of it -> where a connector stands there, or why it cannot continue. On the driver.

The newest snapshot that the connector wrote says where it stands. When that has expired, the offsets table takes over;
but a table that lost it in another way has lost rows too: that stops, and is never passed over.
"""

from __future__ import annotations

from connector.errors import GapError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import LOST_COMMIT_REMEDY
from connector.iceberg.commit.last_commit import LastCommit, find_last_commit, read_last_commit
from connector.iceberg.commit.stored_commit import StoredCommit


def check_ancestry(table: Table, name: str, noted: StoredCommit | None) -> LastCommit:
    """Return where a connector stands in a table; empty when it never wrote there. Reads the metadata file.

    Raises:
        GapError: the table was dropped and made again, or rolled back, since the connector wrote to it.
    """
    if noted is None:
        return read_last_commit(table, name) or LastCommit()
    if noted.uuid and noted.uuid != table.uuid:
        raise GapError(
            f"table {table.name} was dropped and made again since connector {name} wrote to it: rows that were in it "
            f"are gone; {LOST_COMMIT_REMEDY}"
        )
    return find_last_commit(table, name, LastCommit(noted.position, None, noted.sequence_number))
