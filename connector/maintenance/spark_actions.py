"""A table + options -> Iceberg's own Spark actions on it: files merged, manifests merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import RetriableError
from connector.iceberg.catalog.snapshot_schema import lacks_spark_types
from connector.iceberg.catalog.table import VECTORS_VERSION, Table
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import activate_session, iterate, jvm, map_java_errors, to_dict
from connector.maintenance.group_rewrite import merge_groups, plan_rewrite
from connector.maintenance.rewrite_rules import WritePermit, rewrite_options
from connector.maintenance.size_tiers import plan_passes
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import MAINTENANCE_TASK, MANIFESTS, REWRITE
from connector.settings.iceberg.maintenance.policies import RewritePolicy
from connector.settings.iceberg.write_mode import MAIN_BRANCH

MANIFEST_SIZE_PROPERTY, DEFAULT_MANIFEST_BYTES = "commit.manifest.target-size-bytes", 8 * 1024**2
"""Iceberg's."""
_SMALL_SHARE = 0.75
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_DANGLING_TRIES = 5
_BY_KEY = "EQUALITY_DELETES"


def rewrite_data_files(
    spark: SparkSession,
    table: Table,
    policy: RewritePolicy,
    state: TableState,
    name: str,
    permit: WritePermit | None = None,
    *,
    by_groups: bool = False,
) -> dict[str, int]:
    """Merge small files, and rewrite files with many deleted rows; rows keep their ids (format 3).

    A table that Iceberg's Spark code does not read is read and written by ours (`group_rewrite`).

    A commit that would take deletes along that came since is refused. With `by_groups` a group of files that fails, or
    whose commit is refused, is left for the next time; else all are.

    Returns:
        How many data files went and came, their bytes, how many files could not be committed, and how many delete files
        of each kind went because nothing is left that they apply to.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError: another writer was faster.
        FatalError: a file cannot be read.
    """
    done = {"removed": 0, "added": 0, "bytes": 0, "failed": 0}
    by_spark, permit = not lacks_spark_types(table.schema_json), permit or WritePermit()
    activate_session(spark)
    for one in plan_passes(policy, state, table.layout().target_file_size_bytes):
        options = rewrite_options(policy, state, one, by_groups=by_groups)
        made = (
            _rewrite_once(spark, table, options, name, permit)
            if by_spark
            else merge_groups(spark, table, options, name, permit, by_groups=by_groups)
        )
        for figure, count in made.items():
            done[figure] += count
        if done["bytes"] >= policy.max_bytes:
            break
    if by_spark and done["removed"] and table.format_version < VECTORS_VERSION:
        done |= _remove_dangling_deletes(spark, table, name)
    return done


def count_rewrite_groups(spark: SparkSession, table: Table, policy: RewritePolicy, state: TableState) -> int:
    """Return how many groups of files a rewrite would begin with; 0 where it would find nothing to do.

    Asks Iceberg's planner of rewrites, with the options of each call of it: the first one that finds something sees the
    files as they are. Cost: the manifests, for each call until then.

    Raises:
        RetriableError: the store is away.
        FatalError: a manifest cannot be read.
    """
    newest = table.snapshot_id
    if newest is None:
        return 0
    activate_session(spark)
    with map_java_errors(f"planning a rewrite of files of {table.name}"):
        for one in plan_passes(policy, state, table.layout().target_file_size_bytes):
            plan = plan_rewrite(spark, table, newest, rewrite_options(policy, state, one, by_groups=False))
            if groups := int(plan.totalGroupCount()):
                return groups
    return 0


def _rewrite_once(
    spark: SparkSession, table: Table, options: Mapping[str, str], name: str, permit: WritePermit
) -> dict[str, int]:
    doing = f"rewriting files of {table.name}"
    with map_java_errors(doing), settle_commits(table, doing, permit.accepts, permit.folder) as java:
        action = open_actions(spark).rewriteDataFiles(java).snapshotProperty(CREATED_BY, name)
        action = action.snapshotProperty(MAINTENANCE_TASK, REWRITE).toBranch(table.branch)
        for key, value in options.items():
            action = action.option(key, value)
        done = action.execute()
    return {
        "removed": int(done.rewrittenDataFilesCount()),
        "added": int(done.addedDataFilesCount()),
        "bytes": int(done.rewrittenBytesCount()),
        "failed": int(done.failedDataFilesCount()),
    }


def _remove_dangling_deletes(spark: SparkSession, table: Table, name: str) -> dict[str, int]:
    """Take out deletes of files that are gone, and count them by kind; vectors go with their files.

    Iceberg refuses it where any commit came since it began. What files were merged stays so, and where commits come too
    fast for several tries the deletes stay until files are merged again: no reader heeds them.
    """
    doing, reason = f"removing dangling deletes of {table.name}", ""
    for _ in range(_DANGLING_TRIES):
        try:
            with map_java_errors(doing), settle_commits(table, doing) as java:
                action = open_actions(spark).removeDanglingDeleteFiles(java).snapshotProperty(CREATED_BY, name)
                done = action.snapshotProperty(MAINTENANCE_TASK, REWRITE).toBranch(table.branch).execute()
                by_key = [str(file.content()) == _BY_KEY for file in iterate(done.removedDeleteFiles())]
                return {"equality_delete_files": sum(by_key), "position_delete_files": len(by_key) - sum(by_key)}
        except RetriableError as error:
            reason = str(error)
    structlog.get_logger().warning("deletes of merged files stay until the next merge", table=table.name, reason=reason)
    return {}


def count_small_manifests(table: Table) -> int:
    """Return how many manifests would be merged: those that are small, where there are several of data or of deletes.

    Cost: the manifest list.

    Raises:
        RetriableError: the store is away.
        FatalError: the list cannot be read.
    """
    newest = table.java.snapshot(table.branch)
    if newest is None or table.branch != MAIN_BRANCH or lacks_spark_types(table.schema_json):
        return 0
    with map_java_errors(f"reading the manifest list of {table.name}"):
        is_small, spec_id = _SmallManifests.of(table), int(table.java.spec().specId())
        counts = [
            sum(int(one.partitionSpecId()) == spec_id and is_small.test(one) for one in iterate(manifests))
            for manifests in (newest.dataManifests(table.java.io()), newest.deleteManifests(table.java.io()))
        ]
    return sum(count for count in counts if count > 1)


def rewrite_manifests(spark: SparkSession, table: Table, name: str) -> dict[str, int]:
    """Merge small manifests of the table's current spec; nothing where a branch is followed: Iceberg knows only `main`.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError: another writer was faster.
    """
    if table.branch != MAIN_BRANCH or lacks_spark_types(table.schema_json):
        return {"removed": 0, "added": 0}
    doing = f"merging manifests of {table.name}"
    activate_session(spark)
    with map_java_errors(doing), settle_commits(table, doing) as java:
        action = open_actions(spark).rewriteManifests(java).snapshotProperty(CREATED_BY, name)
        action = action.rewriteIf(_SmallManifests.of(table))
        done = action.snapshotProperty(MAINTENANCE_TASK, MANIFESTS).execute()
        return {"removed": _count(done.rewrittenManifests()), "added": _count(done.addedManifests())}


def open_actions(spark: SparkSession) -> Any:
    """Return Iceberg's actions by a session, in which columns may differ by the case of their names alone."""
    session = spark._jsparkSession.cloneSession()  # noqa: SLF001 - Iceberg takes Java's, and clones it likewise
    session.conf().set(_CASE_SENSITIVE, "true")
    return jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(session)


def _count(files: Any) -> int:
    return sum(1 for _ in iterate(files))


@attrs.frozen
class _SmallManifests:
    """Java's `Predicate` of manifests below a size: what is large enough is not written again each time."""

    below_bytes: float

    @staticmethod
    def of(table: Table) -> _SmallManifests:
        text = to_dict(table.java.properties()).get(MANIFEST_SIZE_PROPERTY, "")
        target = int(text) if text.isdigit() else DEFAULT_MANIFEST_BYTES
        return _SmallManifests(target * _SMALL_SHARE)

    def test(self, manifest: Any) -> bool:
        """Tell whether it is small."""
        return bool(int(manifest.length()) < self.below_bytes)

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.util.function.Predicate",)
