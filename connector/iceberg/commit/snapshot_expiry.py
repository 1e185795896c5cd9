"""A table that the sink made -> the same without snapshots that nobody keeps: a commit's cost must not grow for ever.

Every commit writes all snapshots of the table into a new metadata file. Iceberg's table properties say what is kept;
tables that others made are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import attrs
import structlog

from connector.errors import ConnectorError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import jvm, map_java_errors

EXPIRE_SNAPSHOTS_PROPERTY = "icebridge.expire-snapshots"
"""Table property: whether the sink expires old snapshots of the table."""
MAX_AGE_PROPERTY, MIN_SNAPSHOTS_PROPERTY = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
METADATA_CLEANUP_PROPERTY = "write.metadata.delete-after-commit.enabled"
METADATA_CLEANUP_PROPERTIES = {
    METADATA_CLEANUP_PROPERTY: "true",
    "write.metadata.previous-versions-max": "10",
}
"""Properties of tables that get a commit with every batch: metadata files of before go by themselves."""
CREATED_TABLE_PROPERTIES = {
    **METADATA_CLEANUP_PROPERTIES,
    EXPIRE_SNAPSHOTS_PROPERTY: "true",
    MAX_AGE_PROPERTY: str(600 * 1000),
    MIN_SNAPSHOTS_PROPERTY: "100",
}
"""What tables that the sink makes have, unless the settings say something else."""

DELETION_PROPERTY = "gc.enabled"
"""Table property: whether files may be deleted with snapshots; Iceberg's."""

METADATA_FILES, SNAPSHOTS = "metadata files", "snapshots"
"""What grows with every commit where nothing takes it away."""

EXPIRY_SLACK = 1.1
"""Expiring begins when the oldest is older than it may be by so much: several go at once."""
DELETE_THREADS = 8


def is_on(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Tell what a table's property says, as Iceberg reads it: in any case, and whatever is not `true` is off."""
    return properties.get(name, str(default)).lower() == "true"


def may_delete_files(properties: Mapping[str, str]) -> bool:
    """Tell by a table's properties whether its files may be deleted."""
    return is_on(properties, DELETION_PROPERTY, default=True)


@attrs.frozen
class SnapshotRetention:
    """Which snapshots of a table are kept: those younger than an age, and the newest few whatever their age."""

    age_ms: int
    least: int

    @staticmethod
    def of(properties: Mapping[str, str]) -> SnapshotRetention | None:
        """Read a table's properties; None where snapshots are not ours to expire."""
        if not is_on(properties, EXPIRE_SNAPSHOTS_PROPERTY) or not may_delete_files(properties):
            return None
        try:
            return SnapshotRetention(
                int(properties.get(MAX_AGE_PROPERTY, CREATED_TABLE_PROPERTIES[MAX_AGE_PROPERTY])),
                max(1, int(properties.get(MIN_SNAPSHOTS_PROPERTY, CREATED_TABLE_PROPERTIES[MIN_SNAPSHOTS_PROPERTY]))),
            )
        except ValueError:
            return None

    def is_due(self, count: int, oldest_ms: int, now_ms: int, slack: float = EXPIRY_SLACK) -> bool:
        """Tell whether some of `count` snapshots, the oldest of that time, may go."""
        return count > self.least * slack and now_ms - oldest_ms > self.age_ms * slack


def is_kept_small(properties: Mapping[str, str]) -> bool:
    """Tell by a table's properties whether it is the sink's to keep small: it has created it, and nobody objected."""
    return SnapshotRetention.of(properties) is not None


def find_growth(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Name what of a table grows with every commit, by its properties, unless other maintenance takes it away."""
    metadata = is_on(properties, METADATA_CLEANUP_PROPERTY)
    snapshots = is_kept_small(properties)
    return (*(() if metadata else (METADATA_FILES,)), *(() if snapshots else (SNAPSHOTS,)))


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
