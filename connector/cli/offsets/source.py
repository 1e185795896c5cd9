"""`icebridge offsets` of a source -> its stored offsets, shown or reset."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs
import click
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.cli.status.answers import TABLES_WAIT_S, wait_for
from connector.errors import ConfigError, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import Driver
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_driver, open_gateway
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.stop_signals import finish_first
from connector.settings import SourceSettings
from connector.source.snapshots import discovery
from connector.source.snapshots.next_step import SnapshotLine, SnapshotOffset
from connector.source.snapshots.table_history import read_history
from connector.source.snapshots.table_offset import TableOffset, forget_offsets


@attrs.frozen
class SourceTable:
    """A table that the source reads, or has read: its stored standing, its id, newest snapshot and history now.

    `fault` says why these cannot be read.
    """

    name: str
    standing: TableOffset | None
    uuid: str | None = None
    newest: int | None = None
    history: SnapshotLine | None = None
    fault: str | None = None

    @property
    def position(self) -> SnapshotOffset | None:
        """How far it is published; None where that is not stored."""
        return None if self.standing is None or self.standing.is_forgotten else self.standing.position


def show(settings: SourceSettings, starting: StartingSession) -> None:
    """Print where the source stands in each table, and how many snapshots it is behind.

    `starting` is the JVM; Spark is not needed.

    Raises:
        RetriableError: the catalog is away, or does not answer; it is asked once.
    """
    once = attrs.evolve(settings, errors=attrs.evolve(settings.errors, retry_timeout_ms=0))
    with ThreadPoolExecutor(1, "offsets") as beside, open_gateway(starting) as driver:
        asked = beside.submit(lambda: read_tables(driver, once, _open_rows(driver, once).by_table))
        tables = wait_for(asked, TABLES_WAIT_S)
    grid = Grid(
        "table", "stored snapshot", "newest snapshot", "behind", "full read", title=f"{settings.name}: positions"
    )
    for table in tables:
        grid.add_row(*_format_row(table))
    open_console().print(grid)


def reset(settings: SourceSettings, *, to: str, tables: tuple[str, ...], execute: bool) -> None:
    """Forget the positions of tables (`earliest`: snapshot.mode applies again), or set them to the newest snapshot.

    Without `execute` only what would be done is printed.

    Raises:
        ConfigError: a table that was named is none of the source's.
        FatalError: the newest snapshot of a table is asked for, and cannot be read.
    """
    with open_driver(settings) as driver:
        rows = _open_rows(driver, settings)
        known_tables = {table.name: table for table in read_tables(driver, settings, rows.by_table)}
        unknown = sorted(set(tables) - known_tables.keys())
        if unknown:
            raise ConfigError(
                f"--table {', '.join(unknown)}: not a table of this source; it has {', '.join(known_tables)}"
            )
        chosen = [known_tables[name] for name in tables or known_tables]
        faults = [table.fault for table in chosen if table.fault is not None]
        if faults and to == "latest":
            raise FatalError(f"--to latest: {'; '.join(faults)}; name the other tables by --table")
        new = {t.name: _newest_offset(t) for t in chosen if to == "latest" and t.uuid is not None}
        _print_reset(chosen, new, execute=execute)
        if execute:
            with finish_first():
                left = forget_offsets(rows.by_table, [table.name for table in chosen])
                rows.forget(table.name for table in chosen)
                rows.put(None, {**left, **{name: standing.json() for name, standing in new.items()}})


def _newest_offset(table: SourceTable) -> TableOffset:
    before = None if table.standing is None else table.standing.ts_ns
    return TableOffset(SnapshotOffset(table.uuid or "", table.newest), before)


def _open_rows(driver: Driver, settings: SourceSettings) -> OffsetRows:
    def open_rows() -> OffsetRows:
        return OffsetRows(
            Catalog(driver, settings.catalog, settings.errors), settings.capture.offsets_table, settings.name, SOURCE
        )

    return call_with_retries(open_rows, settings.errors)


def read_tables(driver: Driver, settings: SourceSettings, texts: Mapping[str, str]) -> list[SourceTable]:
    """Return the tables that the source reads, or has read; `texts` are their stored offsets.

    One that cannot be read is told, and keeps no other from being shown: the source goes on with those, too.

    Raises:
        RetriableError: the catalog stayed away.
    """
    catalog = Catalog(driver, settings.catalog, settings.errors)
    addresses = call_with_retries(lambda: discovery.find_tables(catalog, settings), settings.errors)
    stored = {name: TableOffset.parse(text) for name, text in texts.items()}
    tables = []
    for name in sorted({*addresses, *(name for name, offset in stored.items() if not offset.is_forgotten)}):
        table = SourceTable(name, stored.get(name))
        try:
            if name in addresses:
                table = _look_at(table, catalog.find(*addresses[name]), driver, settings)
        except FatalError as error:
            click.echo(str(error), err=True)
            table = attrs.evolve(table, fault=str(error))
        tables.append(table)
    return tables


def _look_at(known: SourceTable, table: Table | None, driver: Driver, settings: SourceSettings) -> SourceTable:
    if table is None:
        return known
    snapshots = SnapshotHistory(driver, table, settings.capture.branch)
    newest = snapshots.newest()
    past = read_history(snapshots) if newest is not None else None
    return attrs.evolve(known, uuid=table.uuid, newest=newest, history=past)


def _format_row(table: SourceTable) -> list[str]:
    at = table.position
    read = "" if at is None or at.reading is None else f"snapshot {at.reading.snapshot_id}, {at.reading.part} parts out"
    stored = "-" if at is None else _format_snapshot(at.snapshot_id)
    return [table.name, stored, _format_newest(table), snapshots_behind(table), read]


def _format_newest(table: SourceTable) -> str:
    if table.fault is not None:
        return "cannot be read"
    return "no such table" if table.uuid is None else _format_snapshot(table.newest)


def snapshots_behind(table: SourceTable) -> str:
    """How many snapshots are to come; `?` where the stored one is not in the history."""
    if table.position is None or table.history is None:
        return ""
    ids = [ancestor.snapshot_id for ancestor in table.history.ancestors]
    at = table.position.snapshot_id
    if at is None:
        return str(len(ids))
    return str(len(ids) - 1 - ids.index(at)) if at in ids else "?"


def _print_reset(chosen: list[SourceTable], new: dict[str, TableOffset], *, execute: bool) -> None:
    title = "positions to set" if execute else "positions that would be set"
    grid = Grid("table", "stored snapshot", "new", title=title)
    for table in chosen:
        stored = "-" if table.position is None else _format_snapshot(table.position.snapshot_id)
        fresh = new.get(table.name)
        grid.add_row(table.name, stored, "forgotten" if fresh is None else _format_snapshot(fresh.position.snapshot_id))
    open_console().print(grid)
    if not execute:
        click.echo("nothing was changed; use --execute to set them")


def _format_snapshot(snapshot_id: int | None) -> str:
    return "none" if snapshot_id is None else str(snapshot_id)
