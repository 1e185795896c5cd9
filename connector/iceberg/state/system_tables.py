"""Rows -> a data file of one of our own tables (offsets, schemas, deleted keys); old snapshots -> away.

On the driver, through Java's FileIO: so few rows are no job for executors.
"""

from __future__ import annotations

import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from connector.errors import ConnectorError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.retention_properties import METADATA_CLEANUP_PROPERTIES
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import map_java_errors
from connector.iceberg.write.partitioning import UNPARTITIONED
from connector.iceberg.write.rolling_file import FileKind, describe_file

SYSTEM_TABLE_PROPERTIES = {"format-version": "2", **METADATA_CLEANUP_PROPERTIES}
"""Properties of our own tables, which get a commit with every batch."""

RETAINED_SNAPSHOTS = 10
MAX_SNAPSHOTS = 50
"""So many are expired at once. Counted in the table: a process may end after each save."""


def write_file(table: Table, kind: FileKind, rows: pa.Table) -> FileDescription:
    """Write rows to a new file of an unpartitioned table; give its description (`write.rolling_file`).

    Raises:
        RetriableError: the catalog or the store is away.
    """
    table.renew()
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    with map_java_errors(f"writing a file of table {table.name}"):
        path = f"{table.java.location()}/data/{uuid.uuid4().hex}.parquet"
        stream = table.java.io().newOutputFile(path).createOrOverwrite()
        stream.write(data)
        stream.close()
    return describe_uncounted(kind, path, len(data), rows.num_rows)


def count_snapshots(table: Table) -> int:
    """Count the snapshots of a table as it was last read."""
    return int(table.java.operations().current().snapshots().size())


def retain_newest_snapshots(table: Table) -> None:
    """Drop all snapshots but the newest few: a save a second would grow the metadata without end.

    What fails is left for the next time.
    """
    try:
        doing = f"expiring snapshots of {table.name}"
        with map_java_errors(doing), settle_commits(table, doing) as java:
            old = java.expireSnapshots().expireOlderThan(int(time.time() * 1000))
            old.retainLast(RETAINED_SNAPSHOTS).commit()
    except ConnectorError as error:
        structlog.get_logger().warning("snapshot expiry is postponed", table=table.name, reason=str(error))


def delete_orphan(table: Table, description: FileDescription) -> None:
    """Delete a file that no commit has, and none can get; one that cannot be deleted is an orphan, and harmless."""
    try:
        table.delete_file(description.path)
    except ConnectorError as error:
        structlog.get_logger().warning("a file is left behind", reason=str(error))


def describe_uncounted(kind: FileKind, path: str, size_bytes: int, count: int) -> FileDescription:
    """Return the description of a file of which nothing but its size and the count of its rows is known."""
    names = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    counts = {"record_count": count, "split_offsets": [4], **{name: {} for name in names}}
    return describe_file(kind, UNPARTITIONED, path, size_bytes, counts)
