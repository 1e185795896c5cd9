"""A table + options -> Iceberg's own Spark actions on it: files merged, manifests merged, orphans deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import attrs
import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from connector.errors import FatalError, RetriableError
from connector.iceberg.catalog.table import VECTORS_VERSION, Table
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.settlement import SnapshotChange, settle_commits
from connector.iceberg.commit.snapshot_expiry import may_delete_files
from connector.iceberg.java import JavaTable, activate_session, iterate, jvm, load_class, map_java_errors, to_dict
from connector.maintenance.metadata_files import MetadataFiles, find_metadata_of_others, metadata_folders, plain_path
from connector.maintenance.rewrite_rules import may_land, rewrite_options
from connector.maintenance.size_tiers import plan_passes
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import MAINTENANCE_TASK, MANIFESTS, REWRITE
from connector.settings.iceberg.maintenance.options import ORPHANS
from connector.settings.iceberg.maintenance.policies import OrphanPolicy, RewritePolicy
from connector.settings.iceberg.write_mode import MAIN_BRANCH

MANIFEST_SIZE_PROPERTY, DEFAULT_MANIFEST_BYTES = "commit.manifest.target-size-bytes", 8 * 1024**2
"""Iceberg's."""
_SMALL_SHARE = 0.75
_DANGLING_TRIES = 5


@attrs.frozen
class WritePermit:
    """Below which folder files are written; `holds` tells right before a commit whether it may still be tried."""

    folder: str | None = None
    holds: Callable[[], bool] = lambda: True


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

    A commit that would take deletes along that came since is refused. With `by_groups` a group of files that fails, or
    whose commit is refused, is left for the next time; else all are.

    Returns:
        How many data files went and came, their bytes, and how many files could not be committed.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError: another writer was faster.
        FatalError: a file cannot be read.
    """
    activate_session(spark)
    done = {"removed": 0, "added": 0, "bytes": 0, "failed": 0}
    for one in plan_passes(policy, state, table.layout().target_file_size_bytes):
        options = rewrite_options(policy, state, one, by_groups=by_groups)
        for figure, count in _rewrite_once(spark, table, options, name, permit or WritePermit()).items():
            done[figure] += count
        if done["bytes"] >= policy.max_bytes:
            break
    if done["removed"] and table.format_version < VECTORS_VERSION:
        _remove_dangling_deletes(spark, table, name)
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
    java = jvm(spark)
    with map_java_errors(f"planning a rewrite of files of {table.name}"):
        everything = java.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        for one in plan_passes(policy, state, table.layout().target_file_size_bytes):
            planner = java.org.apache.iceberg.actions.BinPackRewriteFilePlanner(table.java, everything, newest, False)
            options = java.java.util.HashMap()
            for key, value in rewrite_options(policy, state, one, by_groups=False).items():
                options.put(key, value)
            planner.init(options)
            if groups := int(planner.plan().totalGroupCount()):
                return groups
    return 0


def _rewrite_once(
    spark: SparkSession, table: Table, options: Mapping[str, str], name: str, permit: WritePermit
) -> dict[str, int]:
    doing = f"rewriting files of {table.name}"

    def accepts(made: SnapshotChange, later: Sequence[SnapshotChange]) -> bool:
        return permit.holds() and may_land(made, later)

    with map_java_errors(doing), settle_commits(table, doing, accepts, permit.folder) as java:
        action = _actions(spark).rewriteDataFiles(java).snapshotProperty(CREATED_BY, name)
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


def _remove_dangling_deletes(spark: SparkSession, table: Table, name: str) -> None:
    """Take out position deletes of files that are gone; vectors go with their files.

    Iceberg refuses it where any commit came since it began. What files were merged stays so, and where commits come too
    fast for several tries the deletes stay until files are merged again: no reader heeds them.
    """
    doing, reason = f"removing dangling deletes of {table.name}", ""
    for _ in range(_DANGLING_TRIES):
        try:
            with map_java_errors(doing), settle_commits(table, doing) as java:
                action = _actions(spark).removeDanglingDeleteFiles(java).snapshotProperty(CREATED_BY, name)
                action.snapshotProperty(MAINTENANCE_TASK, REWRITE).toBranch(table.branch).execute()
            return
        except RetriableError as error:
            reason = str(error)
    structlog.get_logger().warning("deletes of merged files stay until the next merge", table=table.name, reason=reason)


def count_small_manifests(table: Table) -> int:
    """Return how many manifests would be merged: those that are small, where there are several of data or of deletes.

    Cost: the manifest list.

    Raises:
        RetriableError: the store is away.
        FatalError: the list cannot be read.
    """
    newest = table.java.snapshot(table.branch)
    if newest is None or table.branch != MAIN_BRANCH:
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
    if table.branch != MAIN_BRANCH:
        return {"removed": 0, "added": 0}
    doing = f"merging manifests of {table.name}"
    activate_session(spark)
    with map_java_errors(doing), settle_commits(table, doing) as java:
        action = _actions(spark).rewriteManifests(java).snapshotProperty(CREATED_BY, name)
        action = action.rewriteIf(_SmallManifests.of(table))
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
        FatalError: paths differ in scheme or authority, and the policy's mode is ERROR; or another table is there too.
        RetriableError: the store is away.
    """
    doing = f"looking for orphans of {table.name}"
    activate_session(spark)
    table.refresh()
    with map_java_errors(doing):
        if not may_delete_files(to_dict(table.java.properties())):
            return {"removed": 0}
        _refuse_other_tables(spark, table, policy)
        action = _below_location(spark, table, policy)
        if not execute:
            action = action.deleteWith(_Untouched())
        done = action.execute()
        return {"removed": int(done.orphanFilesCount())}


def _refuse_other_tables(spark: SparkSession, table: Table, policy: OrphanPolicy) -> None:
    """Raise where a table lies below this one: no snapshot of this one has its files. Its metadata may be young."""
    folders = metadata_folders(str(table.java.location()), to_dict(table.java.properties()))
    found = MetadataFiles(frozenset(map(plain_path, folders)))
    _below_location(spark, table, attrs.evolve(policy, min_age_s=0)).deleteWith(found).execute()
    # A table that was renamed keeps its location, which the next one of its former name gets, too.
    other = found.elsewhere or find_metadata_of_others(table, found.beside)
    if other is not None:
        raise FatalError(
            f"orphans of {table.name} cannot be told from files of another table below its location, or at it, which "
            f"has {other}; if that table was dropped, delete this file, else set {ORPHANS.name}=false for this table"
        )


def _below_location(spark: SparkSession, table: Table, policy: OrphanPolicy) -> Any:
    location = str(table.java.location())
    action = _orphan_action(spark, table.java, policy).location(location)
    return action.usePrefixListing(not _is_known_to_hadoop(spark, location))


def delete_unfinished_files(spark: SparkSession, table: Table, policy: OrphanPolicy, folder: str) -> int:
    """Delete the files of a run that was killed, but for those that it committed; count them.

    Args:
        spark: the session.
        table: up to date; none of the run's commits may be on its way.
        policy: what to do where paths differ in scheme or authority.
        folder: where the run wrote.

    Cost: nothing where the folder is empty, else the table's manifests, on executors.

    Raises:
        FatalError, RetriableError: as `delete_orphan_files`.
    """
    doing = f"deleting files of a run of {table.name} that was killed"
    activate_session(spark)
    with map_java_errors(doing):
        if not may_delete_files(to_dict(table.java.properties())) or not _has_files(table, folder):
            return 0
        action = _orphan_action(spark, table.java, attrs.evolve(policy, min_age_s=0)).location(folder)
        return int(action.usePrefixListing(True).execute().orphanFilesCount())


def _is_known_to_hadoop(spark: SparkSession, location: str) -> bool:
    """Tell whether Hadoop lists such a place, on executors; what only Iceberg's FileIO knows the driver lists."""
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        return True
    try:
        jvm(spark).org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())  # noqa: SLF001
    except Py4JJavaError:
        return False
    return True


def _has_files(table: Table, folder: str) -> bool:
    lists = load_class(table.spark, "org.apache.iceberg.io.SupportsPrefixOperations")
    if not lists.isInstance(table.java.io()):
        return False
    try:
        return next(iterate(table.java.io().listPrefix(f"{folder}/")), None) is not None
    except Py4JJavaError as error:
        if "FileNotFoundException" in str(error.java_exception):  # where folders are things
            return False
        raise


def _orphan_action(spark: SparkSession, java: JavaTable, policy: OrphanPolicy) -> Any:
    modes = load_class(spark, "org.apache.iceberg.actions.DeleteOrphanFiles$PrefixMismatchMode")
    mode = next(one for one in modes.getEnumConstants() if str(one) == policy.prefix_mismatch_mode)
    before_ms = max(0, time.time_ns() // 1_000_000 - policy.min_age_s * 1000)
    action = _actions(spark).deleteOrphanFiles(java).olderThan(before_ms)
    return action.prefixMismatchMode(mode).option("stream-results", "true")


def _actions(spark: SparkSession) -> Any:
    return jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # noqa: SLF001


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


@attrs.frozen(eq=False)
class _Untouched:
    """Java's `Consumer` that leaves files where they are."""

    def accept(self, path: Any) -> None:
        """Do nothing."""

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.util.function.Consumer",)
