"""A table with old snapshots -> the same without those that nobody needs any more. On the driver; files by Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import structlog
from pyspark.sql import SparkSession

from connector.errors import ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.retention_properties import (
    MAX_AGE_PROPERTY,
    METADATA_CLEANUP_PROPERTIES,
    METADATA_CLEANUP_PROPERTY,
    MIN_SNAPSHOTS_PROPERTY,
    may_delete_files,
)
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.commit.snapshot_expiry import DELETE_THREADS
from connector.iceberg.java import activate_session, jvm, map_java_errors, to_dict
from connector.iceberg.state.offset_rows import read_all_rows
from connector.maintenance.expiry_rules import (
    IN_FLIGHT_MS,
    Expiry,
    ExpiryRule,
    ReaderPosition,
    find_idle_sink,
    newest_commits,
    newest_foreign_commits,
    parse_reader_positions,
    plan_expiry,
)
from connector.maintenance.table_history import read_branch_histories
from connector.settings.iceberg.maintenance.options import EXPIRE_OFFSETS
from connector.settings.iceberg.maintenance.policies import ExpiryPolicy

_DEFAULT_AGE_MS, _DEFAULT_LAST = 5 * 24 * 3600 * 1000, 1
"""Iceberg's own defaults."""


def read_reader_positions(catalog: Catalog, offset_tables: Iterable[str], table: Table) -> list[ReaderPosition]:
    """Return where sources stand in a table. The first of the offset tables is the connector's own.

    Raises:
        RetriableError: the catalog or the store is away: then nothing may expire.
        ConfigError: there is no such offsets table: a source may have its position in one of another name.
    """
    own, *others = dict.fromkeys(offset_tables)
    for name in others:
        if catalog.load(name) is None:
            raise ConfigError(f"{EXPIRE_OFFSETS.name}: there is no table {name}; nothing expires until there is")
    found = [read_all_rows(catalog, name) for name in (own, *others)]
    return [each for rows in found for each in parse_reader_positions(rows, table.uuid)]


def find_needed_since_ms(catalog: Catalog, offset_tables: Iterable[str], table: Table) -> int:
    """Return the date (epoch milliseconds) of the oldest snapshot that a source has still to read; now without one.

    Raises:
        RetriableError, ConfigError: as `read_reader_positions`.
    """
    readers = read_reader_positions(catalog, offset_tables, table)
    rule = ExpiryRule(age_ms=0, retain_last=1, in_flight_ms=0)
    return plan_expiry(read_branch_histories(table), readers, (), rule, _now_ms()).older_than_ms


def find_expiry(
    table: Table,
    policy: ExpiryPolicy,
    readers: Iterable[ReaderPosition],
    *,
    in_flight: Iterable[int] = (),
    in_flight_ms: int = IN_FLIGHT_MS,
) -> Expiry | None:
    """Return what may expire of a table as it was last read; None where its snapshots are not to be deleted.

    `in_flight` are snapshots that a current batch reads.
    """
    properties = to_dict(table.java.properties())
    if not may_delete_files(properties):
        return None
    rule = ExpiryRule(
        policy.age_s * 1000 or _read_number(properties, MAX_AGE_PROPERTY, _DEFAULT_AGE_MS),
        policy.retain_last or _read_number(properties, MIN_SNAPSHOTS_PROPERTY, _DEFAULT_LAST),
        in_flight_ms,
    )
    branches, now_ms = read_branch_histories(table), _now_ms()
    followed = branches[0].snapshots
    writers = (*newest_commits(followed, CONNECTOR_NAME), *newest_foreign_commits(followed, now_ms), *in_flight)
    expiry = plan_expiry(branches, readers, writers, rule, now_ms)
    idle_sink = find_idle_sink(followed, CONNECTOR_NAME, expiry.older_than_ms, now_ms)
    _warn_of_delays(table.name, expiry, idle_sink, policy.max_reader_lag_s)
    return expiry


def _warn_of_delays(table: str, expiry: Expiry, idle_sink: tuple[str, int] | None, max_lag_s: int) -> None:
    log = structlog.get_logger()
    if not expiry.older_than_ms:
        log.warning("nothing expires: the retention of a branch does not keep what sources or sinks need", table=table)
    if idle_sink is not None and idle_sink[1] > max_lag_s:
        log.warning(
            "a sink that has not committed for long delays the expiry of snapshots",
            table=table,
            sink=idle_sink[0],
            lag_s=idle_sink[1],
        )
    if expiry.lag_s > max_lag_s:
        log.warning(
            "a source that lags behind delays the expiry of snapshots",
            table=table,
            source=expiry.held_by,
            lag_s=expiry.lag_s,
        )


def limit_metadata_files(table: Table) -> None:
    """Have old metadata files of a table go with each commit, unless its properties say something of that.

    Raises:
        RetriableError: the catalog stayed away.
    """
    known = to_dict(table.java.properties())
    if METADATA_CLEANUP_PROPERTY in known:
        return

    def change() -> None:
        update = table.java.updateProperties()
        for key in METADATA_CLEANUP_PROPERTIES.keys() - known.keys():
            update.set(key, METADATA_CLEANUP_PROPERTIES[key])
        update.commit()

    with table.turn:
        table.settle(f"setting properties of {table.name}", change)
    structlog.get_logger().info("each commit deletes old metadata files from now on", table=table.name)


def expire_snapshots(spark: SparkSession, table: Table, expiry: Expiry) -> dict[str, int]:
    """Expire what may go, with its files; tags and branches stay, with what they have.

    Returns:
        How many files of each kind went.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError: another writer was faster each time.
    """
    doing = f"expiring snapshots of {table.name}"
    activate_session(spark)
    with map_java_errors(doing), settle_commits(table, doing) as java:
        pool = jvm(spark).java.util.concurrent.Executors.newFixedThreadPool(DELETE_THREADS)
        try:
            session = spark._jsparkSession  # noqa: SLF001 - Iceberg takes Java's session
            action = jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(session).expireSnapshots(java)
            action = action.expireOlderThan(expiry.older_than_ms).retainLast(expiry.retain_last)
            done = action.executeDeleteWith(pool).option("stream-results", "true").execute()
            return {
                "data_files": int(done.deletedDataFilesCount()),
                "equality_delete_files": int(done.deletedEqualityDeleteFilesCount()),
                "position_delete_files": int(done.deletedPositionDeleteFilesCount()),
                "manifests": int(done.deletedManifestsCount()),
                "manifest_lists": int(done.deletedManifestListsCount()),
            }
        finally:
            pool.shutdown()


def _read_number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if text.isdigit() else default


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
