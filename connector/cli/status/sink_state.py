"""Catalog -> where a sink stands: its stored offsets, and its newest commit in each table. Changes nothing.

Neither Spark nor what a run loads of its tables is needed: the offsets table and the metadata of each table are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs
import click
from pyiceberg.table.snapshots import Snapshot

from connector.cli.status.answers import wait_for
from connector.errors import FatalError
from connector.iceberg.catalog.catalog import Catalog, names_in_settings
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import find_newest_snapshot, snapshot_summary
from connector.iceberg.java import Driver
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.maintenance.known_counts import KnownCounts
from connector.maintenance.lease import LeaseTable, owner_name
from connector.maintenance.table_history import summarize_snapshots
from connector.maintenance.table_state import TableState
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings

THREADS = 8
"""So many tables are looked at side by side."""


@attrs.frozen
class SinkTable:
    """A table's newest snapshot of the sink, None without one, and what the offsets table says of the table.

    `files` is the table as its snapshots tell it, with what maintenance counted; empty where that was not asked.
    """

    name: str
    snapshot: Snapshot | None
    noted: Mapping[TopicPartition, int]
    files: TableState = TableState()


@attrs.frozen
class SinkState:
    """What the sink has stored, and its tables that are there, by name."""

    position: KafkaOffsets = KafkaOffsets()
    tables: tuple[SinkTable, ...] = ()


def read_state(
    driver: Driver, settings: SinkSettings, others: Iterable[str] = (), *, with_files: bool = False
) -> SinkState:
    """Read the offsets table, then side by side the tables that it names and `others`; none that is gone.

    With `with_files` what maintenance knows of their files too.

    Raises:
        RetriableError: the catalog is away, or does not answer; it is asked once.
    """
    beside = ThreadPoolExecutor(THREADS, "status")
    try:
        catalog, stored = wait_for(beside.submit(_open_offsets, driver, settings))
        leases = wait_for(beside.submit(_open_leases, catalog, settings)) if with_files else None
        noted = {name: commit.position.offsets for name, commit in stored.tables.items()}
        names = sorted({*noted, *map(catalog.full_name, others)})
        reads = [beside.submit(_read_table, catalog, settings, name, noted.get(name, {}), leases) for name in names]
        tables = tuple(table for one in reads if (table := wait_for(one)) is not None)
    finally:
        # Calls that nobody answers end with the JVM, which ends only when this has returned.
        beside.shutdown(wait=False, cancel_futures=True)
    return SinkState(stored.position or KafkaOffsets(), tables)


def _open_offsets(driver: Driver, settings: SinkSettings) -> tuple[Catalog, OffsetsTable]:
    catalog = Catalog(driver, settings.catalog)
    return catalog, OffsetsTable(catalog, settings.table.offsets_table, settings.name)


def _open_leases(catalog: Catalog, settings: SinkSettings) -> LeaseTable:
    return LeaseTable.open(catalog, settings.table.offsets_table, owner_name())


def _read_table(
    catalog: Catalog,
    settings: SinkSettings,
    name: str,
    noted: Mapping[TopicPartition, int],
    leases: LeaseTable | None,
) -> SinkTable | None:
    """Return a table, None where it is gone; one that cannot be read is told, and keeps no other from being shown."""
    try:
        table = catalog.load(name)
        if table is None:
            return None
        table.follow(settings.table.writes.branch_of(*names_in_settings(catalog, name)))
        return _look_at(table, settings, name, noted, leases)
    except FatalError as error:
        click.echo(str(error), err=True)
        return SinkTable(name, None, noted)


def _look_at(
    table: Table, settings: SinkSettings, name: str, noted: Mapping[TopicPartition, int], leases: LeaseTable | None
) -> SinkTable:
    if leases is None:
        return SinkTable(name, find_newest_snapshot(table, settings.name), noted)
    snapshots = list(table.ancestors())
    newest = next((one for one in snapshots if snapshot_summary(one).get(CONNECTOR_NAME) == settings.name), None)
    return SinkTable(name, newest, noted, KnownCounts(leases).describe(table, summarize_snapshots(snapshots)))
