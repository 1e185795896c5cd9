"""A table that the sink made -> the same without snapshots that nobody keeps: a commit's cost must not grow for ever.

Every commit writes all snapshots of the table into a new metadata file. Iceberg's table properties say what is kept
(`catalog.retention_properties`); tables that others made are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from connector.errors import ConnectorError
from connector.iceberg.catalog.retention_properties import EXPIRY_SLACK, SnapshotRetention
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import jvm, map_java_errors

DELETE_THREADS = 8


def expire_snapshots(
    table: Table,
    properties: Mapping[str, str],
    needed_since_ms: Callable[[], int] | None = None,
    slack: float = EXPIRY_SLACK,
) -> bool:
    """Expire what the table's properties do not keep, if it is time; True when it was done.

    `needed_since_ms` gives the date (epoch milliseconds) of the oldest snapshot that somebody has still to read: it,
    and younger ones, stay. With a `slack` of 1 whatever may go goes at once.

    What fails is left for the next time.
    """
    keeping = SnapshotRetention.of(properties)
    if keeping is None:
        return False
    try:
        limit_ms = _find_limit_ms(table, keeping, needed_since_ms, slack)
        if limit_ms is not None:
            _expire_older(table, keeping, limit_ms)
    except ConnectorError as error:
        structlog.get_logger().warning("snapshot expiry is postponed", table=table.name, reason=str(error))
        return False
    return limit_ms is not None


def _find_limit_ms(
    table: Table, keeping: SnapshotRetention, needed_since_ms: Callable[[], int] | None, slack: float
) -> int | None:
    """Return the date before which snapshots go; None where it is not time, or none of them may."""
    now_ms = time.time_ns() // 1_000_000
    with map_java_errors(_describe(table)):
        snapshots = table.java.operations().current().snapshots()
        count = int(snapshots.size())
        if count <= keeping.least:
            return None
        oldest_ms = int(snapshots.get(0).timestampMillis())
        if not keeping.is_due(count, oldest_ms, now_ms, slack):
            return None
    limit_ms = now_ms - keeping.age_ms
    if needed_since_ms is None:
        return limit_ms
    limit_ms = min(limit_ms, needed_since_ms())
    return limit_ms if oldest_ms < limit_ms else None


def _expire_older(table: Table, keeping: SnapshotRetention, limit_ms: int) -> None:
    doing = _describe(table)
    with map_java_errors(doing), settle_commits(table, doing) as java:
        pool = jvm(table.driver).java.util.concurrent.Executors.newFixedThreadPool(DELETE_THREADS)
        try:
            old = java.expireSnapshots().expireOlderThan(limit_ms).retainLast(keeping.least)
            old.executeDeleteWith(pool).commit()
        finally:
            pool.shutdown()


def _describe(table: Table) -> str:
    return f"expiring snapshots of {table.name}"
