"""Commits of a sink + Kafka's end offsets -> its state per table (`icebridge status`); the sink may be running."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Literal

import attrs
import click
import orjson
from pyiceberg.table.snapshots import Snapshot
from rich.console import Console
from rich.table import Column
from rich.table import Table as Grid

from connector.cli.status.answers import wait_for
from connector.cli.status.end_offsets import view_ends
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.commit_summary import SCHEMA_DRIFT_COUNT
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import find_newest_snapshot, snapshot_summary
from connector.iceberg.java import Driver
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.runtime.spark.session import open_gateway
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings

THREADS = 8
"""So many tables are looked at side by side."""


@attrs.frozen
class TableStatus:
    """A table's newest commit of this sink: when, how many events are not in the table yet, and the drift.

    The first two are None where no commit of the sink is left in the table's history, `lag` where Kafka does not tell.
    """

    table: str
    snapshot_id: int | None
    committed_at: str | None
    lag: int | None
    iceberg_schema_drift_count: int


def show(settings: SinkSettings, starting: StartingSession, *, output: Literal["text", "json"]) -> None:
    """Print a row per table that the sink has written, or all of it as one JSON document.

    Without Kafka it is what the tables say, and a line that tells why there is no lag. `starting` is the JVM; Spark is
    not needed.

    Raises:
        RetriableError: the catalog is away, or does not answer; it is asked once.
    """
    with (
        ThreadPoolExecutor(THREADS, "status") as beside,
        view_ends(settings) as asked,
        open_gateway(starting) as driver,
    ):
        reads = _read_tables(driver, settings, beside)
        seen = asked.result()
    found = [_table_status(read, None if seen.unanswered else seen.ends) for read in reads]
    if output == "json":
        tables = {one.table: attrs.asdict(one, filter=lambda field, _: field.name != "table") for one in found}
        told = {"unanswered": seen.unanswered} if seen.unanswered else {}
        document = {"name": settings.name, "tables": tables, **told}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return
    names = ("table", "snapshot", "committed", "lag", "iceberg_schema_drift_count")
    # In a narrow window, or none, a number that is cut off is worse than one on two lines.
    grid = Grid(*(Column(name, overflow="fold") for name in names), title=f"{settings.name}: status")
    for one in found:
        row = (one.table, one.snapshot_id, one.committed_at, one.lag, one.iceberg_schema_drift_count)
        grid.add_row(*("-" if value is None else str(value) for value in row))
    Console().print(grid)
    if seen.unanswered:
        click.echo(seen.unanswered)


@attrs.frozen
class _TableRead:
    """A table's newest snapshot of this sink, and the offsets that it and the sink itself have stored."""

    name: str
    snapshot: Snapshot | None
    offsets: Mapping[TopicPartition, int]
    own: Mapping[TopicPartition, int]


def _read_tables(driver: Driver, settings: SinkSettings, beside: ThreadPoolExecutor) -> list[_TableRead]:
    """Read the offsets table, then all tables that it names side by side; those that are gone are left out."""
    opened = wait_for(beside.submit(_open_offsets, driver, settings))
    if opened is None:
        return []
    catalog, stored = opened
    own = (stored.position or KafkaOffsets()).offsets

    def read(name: str, offsets: Mapping[TopicPartition, int]) -> _TableRead | None:
        table = catalog.load(name)
        return None if table is None else _TableRead(name, find_newest_snapshot(table, settings.name), offsets, own)

    reads = [beside.submit(read, name, one.position.offsets) for name, one in sorted(stored.tables.items())]
    return [found for one in reads if (found := wait_for(one)) is not None]


def _open_offsets(driver: Driver, settings: SinkSettings) -> tuple[Catalog, OffsetsTable] | None:
    catalog = Catalog(driver, settings.catalog)
    if catalog.load(settings.table.offsets_table) is None:
        return None
    return catalog, OffsetsTable(catalog, settings.table.offsets_table, settings.name)


def _count_lag(
    table: Mapping[TopicPartition, int], own: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> int:
    """Count what is not in a table yet; what the sink has read is in every table, also where it had nothing for it."""
    behind = {at: ends[at] - max(offset, own.get(at, 0)) for at, offset in table.items() if at in ends}
    return sum(max(0, count) for count in behind.values())


def _table_status(read: _TableRead, ends: Mapping[TopicPartition, int] | None) -> TableStatus:
    lag = None if ends is None else _count_lag(read.offsets, read.own, ends)
    snapshot = read.snapshot
    if snapshot is None:
        return TableStatus(read.name, None, None, lag, 0)
    drift = int(snapshot_summary(snapshot).get(SCHEMA_DRIFT_COUNT, 0))
    at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return TableStatus(read.name, snapshot.snapshot_id, at, lag, drift)
