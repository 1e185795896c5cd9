"""Stored offsets of a source + its tables -> where it stands (`icebridge status`); the source may be running."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import attrs
import click
import orjson
from rich.table import Column
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.cli.offsets.source import SourceTable, read_tables, snapshots_behind
from connector.cli.status.answers import TABLES_WAIT_S, wait_for
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.java import Driver
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.runtime.spark.session import open_gateway
from connector.runtime.spark.session_builder import StartingSession
from connector.settings import SourceSettings
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue


def show(settings: SourceSettings, starting: StartingSession, *, output: Literal["text", "json"]) -> None:
    """Print a row per table, and one per snapshot on demand, or all of it as one JSON document.

    `starting` is the JVM; Spark is not needed.

    Raises:
        RetriableError: the catalog is away, or does not answer; it is asked once.
    """
    once = attrs.evolve(settings, errors=attrs.evolve(settings.errors, retry_timeout_ms=0))
    with ThreadPoolExecutor(1, "status") as beside, open_gateway(starting) as driver:
        tables, queue = wait_for(beside.submit(_read, driver, once), TABLES_WAIT_S)
    if output == "json":
        click.echo(orjson.dumps(_to_document(settings.name, tables, queue), option=orjson.OPT_INDENT_2).decode())
        return
    names = ("table", "published snapshot", "newest snapshot", "behind")
    grid = Grid(*(Column(name, overflow="fold") for name in names), title=f"{settings.name}: status")
    for table in tables:
        one = _describe_table(table)
        cells = (table.name, one["published_snapshot"], one["newest_snapshot"], one["snapshots_behind"])
        grid.add_row(*("-" if cell is None else str(cell) for cell in cells))
    open_console().print(grid)
    for snapshot in queue.snapshots:
        click.echo(_sentence(snapshot, paused=queue.paused))


def _read(driver: Driver, settings: SourceSettings) -> tuple[list[SourceTable], SnapshotQueue]:
    catalog = Catalog(driver, settings.catalog)
    if catalog.load(settings.capture.offsets_table) is None:
        return read_tables(driver, settings, {}), SnapshotQueue()
    rows = OffsetRows(catalog, settings.capture.offsets_table, settings.name, SOURCE)
    return read_tables(driver, settings, rows.by_table), SnapshotQueue.parse(rows.connector_row)


def _to_document(name: str, tables: list[SourceTable], queue: SnapshotQueue) -> dict[str, Any]:
    return {
        "name": name,
        "tables": {table.name: _describe_table(table) for table in tables},
        "snapshots": [_describe_snapshot(one) for one in queue.snapshots],
        "paused": queue.paused,
    }


def _describe_table(table: SourceTable) -> dict[str, Any]:
    behind = snapshots_behind(table)
    position = table.position
    reading = None if position is None else position.reading
    return {
        "published_snapshot": None if position is None else position.snapshot_id,
        "newest_snapshot": table.newest,
        "snapshots_behind": int(behind) if behind.isdigit() else None,
        "full_read": None if reading is None else attrs.asdict(reading),
    }


def _describe_snapshot(snapshot: QueuedSnapshot) -> dict[str, Any]:
    progress = None if snapshot.progress is None else attrs.asdict(snapshot.progress)
    return {"id": snapshot.id, "table": snapshot.table, "type": snapshot.kind.value, "progress": progress}


def _sentence(snapshot: QueuedSnapshot, *, paused: bool) -> str:
    progress = snapshot.progress
    far = "waits" if progress is None else f"{progress.chunk} chunks, {progress.rows:,} rows read"
    held = ", paused" if paused and snapshot.kind == "incremental" else ""
    return f"{snapshot.kind.value} snapshot {snapshot.id} of {snapshot.table}: {far}{held}"
