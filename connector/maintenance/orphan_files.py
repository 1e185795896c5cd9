"""A table, a folder of a run -> files there that no snapshot has, measured or deleted by Iceberg's Spark action."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.retention_properties import may_delete_files
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import JavaTable, activate_session, iterate, jvm, load_class, map_java_errors, to_dict
from connector.maintenance.file_sizes import FileSizes
from connector.maintenance.metadata_files import MetadataFiles, find_metadata_of_others, metadata_folders, plain_path
from connector.maintenance.spark_actions import open_actions
from connector.settings.iceberg.maintenance.options import ORPHANS
from connector.settings.iceberg.maintenance.policies import OrphanPolicy

ORPHAN_BYTES = "orphan_bytes"
"""What their sizes are counted under."""


def delete_orphan_files(spark: SparkSession, table: Table, policy: OrphanPolicy, *, execute: bool) -> dict[str, int]:
    """Delete files below the table's location that no snapshot has, if they are old enough; count and measure them.

    Cost: two listings of the table, three where there are some to delete, and a request for the size of each of these.

    Args:
        spark: the session.
        table: the table.
        policy: how old they have to be.
        execute: without it they are only counted.

    Returns:
        How many there were, and their bytes (`ORPHAN_BYTES`), unless the store did not tell.

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
        sizes = FileSizes(table.io_properties(), table.name)
        action = _below_location(spark, table, policy)
        found = int(action.deleteWith(sizes).execute().orphanFilesCount())
        measured = sizes.total()
        if execute and found:
            found = int(_below_location(spark, table, policy).execute().orphanFilesCount())
        return {"removed": found} if measured is None else {"removed": found, ORPHAN_BYTES: measured}


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
    action = open_actions(spark).deleteOrphanFiles(java).olderThan(before_ms)
    return action.prefixMismatchMode(mode).option("stream-results", "true")
