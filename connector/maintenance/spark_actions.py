"""A table + options -> Iceberg's own Spark actions on it: files merged, manifests merged, orphans deleted."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import JavaTable, activate_session, iterate, jvm, map_java_errors
from connector.maintenance.rewrite_rules import keeps_later_deletes, rewrite_options
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import MAINTENANCE_TASK, MANIFESTS, REWRITE
from connector.settings.iceberg.maintenance import OrphanPolicy, RewritePolicy

_VECTORS_VERSION = 3


def rewrite_data_files(
    spark: SparkSession, table: Table, policy: RewritePolicy, state: TableState, name: str
) -> dict[str, int]:
    """Merge small files, and write files anew of which much is deleted; rows keep their ids (format 3).

    A commit that would take deletes along that came since is refused, and its group of files left for the next time.

    Returns:
        How many data files went and came, their bytes, and how many files could not be committed.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError: another writer was faster.
    """
    doing = f"rewriting files of {table.name}"
    activate_session(spark)
    # Deletes that are there already may go with the files that they apply to; then the numbers are new ones.
    clean = not state.equality_deletes
    with map_java_errors(doing), settle_commits(table, doing, keeps_later_deletes if clean else None) as java:
        action = _actions(spark).rewriteDataFiles(java).snapshotProperty(CREATED_BY, name)
        action = action.snapshotProperty(MAINTENANCE_TASK, REWRITE).toBranch(table.branch)
        for key, value in rewrite_options(policy, state, keeps_number=clean).items():
            action = action.option(key, value)
        done = action.execute()
    if int(done.rewrittenDataFilesCount()) and table.format_version < _VECTORS_VERSION:
        _remove_dangling_deletes(spark, table, name)
    return {
        "removed": int(done.rewrittenDataFilesCount()),
        "added": int(done.addedDataFilesCount()),
        "bytes": int(done.rewrittenBytesCount()),
        "failed": int(done.failedDataFilesCount()),
    }


def _remove_dangling_deletes(spark: SparkSession, table: Table, name: str) -> None:
    """Take out position deletes of files that are gone; vectors go with their files."""
    doing = f"removing dangling deletes of {table.name}"
    with map_java_errors(doing), settle_commits(table, doing) as java:
        action = _actions(spark).removeDanglingDeleteFiles(java).snapshotProperty(CREATED_BY, name)
        action.toBranch(table.branch).execute()


def rewrite_manifests(spark: SparkSession, table: Table, name: str) -> dict[str, int]:
    """Merge the manifests of the table's current spec.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError: another writer was faster.
    """
    doing = f"merging manifests of {table.name}"
    activate_session(spark)
    with map_java_errors(doing), settle_commits(table, doing) as java:
        action = _actions(spark).rewriteManifests(java).snapshotProperty(CREATED_BY, name)
        done = action.snapshotProperty(MAINTENANCE_TASK, MANIFESTS).execute()
        return {"removed": _count(done.rewrittenManifests()), "added": _count(done.addedManifests())}


def delete_orphan_files(spark: SparkSession, table: Table, policy: OrphanPolicy, *, execute: bool) -> dict[str, int]:
    """Delete files below the table's location that no snapshot has, if they are old enough; count them.

    Args:
        spark: the session.
        table: the table.
        policy: how old they have to be.
        execute: without it they are only counted.

    Raises:
        FatalError: paths differ in scheme or authority, and the policy's mode is ERROR.
        RetriableError: the store is away.
    """
    doing = f"looking for orphans of {table.name}"
    activate_session(spark)
    table.refresh()
    with map_java_errors(doing):
        action = _orphan_action(spark, table.java, policy)
        if not execute:
            action = action.deleteWith(_Nothing())
        done = action.execute()
        return {"removed": int(done.orphanFilesCount())}


def _orphan_action(spark: SparkSession, java: JavaTable, policy: OrphanPolicy) -> Any:
    modes = jvm(spark).java.lang.Class.forName("org.apache.iceberg.actions.DeleteOrphanFiles$PrefixMismatchMode")
    mode = next(one for one in modes.getEnumConstants() if str(one) == policy.prefix_mismatch_mode)
    before_ms = time.time_ns() // 1_000_000 - policy.min_age_s * 1000
    action = _actions(spark).deleteOrphanFiles(java).location(str(java.location())).olderThan(before_ms)
    return action.prefixMismatchMode(mode).option("stream-results", "true")


def _actions(spark: SparkSession) -> Any:
    return jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # noqa: SLF001


def _count(files: Any) -> int:
    return sum(1 for _ in iterate(files))


class _Nothing:
    """Java's `Consumer` that does nothing."""

    def accept(self, path: Any) -> None:
        """Leave the file where it is."""

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.util.function.Consumer",)
