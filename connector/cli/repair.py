"""Tables of a catalog -> those with wrong bounds or partition values, listed or repaired (`icebridge repair`)."""

from __future__ import annotations

from functools import partial

import attrs
import click
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.errors import ConfigError, ConnectorError, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.repair.manifest_repair import MisleadingBounds, find_misleading_bounds, remove_misleading_bounds
from connector.iceberg.repair.partition_repair import MisplacedFiles, find_misplaced_files, move_misplaced_files
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_driver
from connector.runtime.stop_signals import finish_first
from connector.settings import SinkSettings

_Place = tuple[tuple[str, ...], str]
"""A table's namespace and its name, which may have dots of its own."""


@attrs.frozen
class _Findings:
    """What misleads readers of a table."""

    bounds: MisleadingBounds
    placed: MisplacedFiles

    @property
    def repairable(self) -> bool:
        return bool(self.bounds.manifests or self.placed.manifests)

    @property
    def branches(self) -> tuple[str, ...]:
        return tuple(sorted({*self.bounds.branches, *self.placed.branches}))


def repair_tables(settings: SinkSettings, *, tables: tuple[str, ...], execute: bool) -> None:
    """Find tables with bounds or partition values by which readers leave out deletes and rows, and put them right.

    A signal ends it after the table that is being repaired.

    Args:
        settings: a sink's; its catalog is looked through, and of it the namespace of its tables.
        tables: only these, with their namespace where it is another; by default all of the namespace, and all others
            that the sink has written to.
        execute: do it; without this only what would be done is shown.

    Raises:
        ConfigError: there is no such table, or none at all.
        FatalError: some tables cannot be read, or repaired; all others are done.
    """
    with open_driver(settings) as driver:
        catalog = Catalog(driver, settings.catalog, settings.errors)
        names = [_place(settings, table) for table in tables] or _list_places(catalog, settings)
        checked, unread = _find_faults(catalog, settings, names, asked=bool(tables))
        hurt = {name: (table, findings) for name, (table, findings) in checked.items() if findings.repairable}
        _print_tables({name: findings for name, (_, findings) in hurt.items()}, execute=execute)
        unmended = _mend_tables(settings, [table for table, _ in hurt.values()]) if execute else []
    if hurt and not execute:
        click.echo("nothing was changed; use --execute to do so")
    others = {name: findings.branches for name, (_, findings) in checked.items() if findings.branches}
    for name, branches in others.items():
        click.echo(
            f"{name}: branch {', '.join(branches)} has such files too, and Iceberg cannot rewrite its manifests: "
            "publish it (fast_forward), repair the table, and bring the branch to main"
        )
    mixed = {name: findings.placed.mixed for name, (_, findings) in checked.items() if findings.placed.mixed}
    for name, count in mixed.items():
        click.echo(
            f"{name}: {count} files are under one partition value and have rows, or deletes, of several: rewrite them "
            "(Iceberg's rewrite_data_files with rewrite-all), and run this again"
        )
    if not hurt and not others and not mixed:
        click.echo(f"{len(checked)} tables checked; nothing to repair")
    if failed := [*unread, *unmended]:
        raise FatalError(f"repair: {len(failed)} tables could not be checked or repaired: {'; '.join(failed)}")


def _place(settings: SinkSettings, table: str) -> _Place:
    *levels, name = table.split(".")
    return tuple(levels) or settings.catalog.namespace, name


def _list_places(catalog: Catalog, settings: SinkSettings) -> list[_Place]:
    """Return the tables of the sink's namespace, and those of others that it has written to (events may name them)."""
    namespace = settings.catalog.namespace
    places = call_with_retries(lambda: catalog.list_tables(namespace), settings.errors)
    written = call_with_retries(
        lambda: OffsetsTable(catalog, settings.table.offsets_table, settings.name).tables, settings.errors
    )
    places += sorted({_place(settings, table) for table in written} - set(places))
    if not places:
        raise ConfigError(
            f"repair: namespace {'.'.join(namespace)} of the catalog has no tables; check warehouse, uri and "
            "table-namespace, or name tables with --table"
        )
    return places


def _find_faults(
    catalog: Catalog, settings: SinkSettings, places: list[_Place], *, asked: bool
) -> tuple[dict[str, tuple[Table, _Findings]], list[str]]:
    """Look at tables; the second result says which cannot be read, and why."""
    findings_by_name: dict[str, tuple[Table, _Findings]] = {}
    unread, missing = list[str](), list[str]()
    for place in dict.fromkeys(places):
        try:
            named = "" not in (*place[0], place[1])
            table = call_with_retries(partial(catalog.find, *place), settings.errors) if named else None
            if table is None:
                missing.append(".".join((*place[0], place[1])))
            else:
                findings_by_name[table.name] = table, call_with_retries(partial(_inspect_table, table), settings.errors)
        except ConnectorError as error:
            unread.append(str(error))
    # Of those that were listed one may be gone since.
    if missing and asked:
        names = ", ".join(sorted(missing))
        raise ConfigError(f"repair: no table {names}; add its namespace if it is in another one")
    return findings_by_name, unread


def _inspect_table(table: Table) -> _Findings:
    return _Findings(find_misleading_bounds(table), find_misplaced_files(table))


def _mend_tables(settings: SinkSettings, tables: list[Table]) -> list[str]:
    """Repair tables one after the other, and tell of each; return which cannot be repaired, and why."""
    unmended = list[str]()
    for table in tables:
        try:
            with finish_first():
                count = call_with_retries(partial(_mend_table, table), settings.errors)
                click.echo(f"{table.name}: {count} files mended")
        except ConnectorError as error:
            unmended.append(f"{table.name}: {error}")
    return unmended


def _mend_table(table: Table) -> int:
    """Look again: another writer may have been here meanwhile."""
    table.refresh()
    bounds, count = find_misleading_bounds(table), 0
    if bounds.manifests:
        count += remove_misleading_bounds(table, bounds)
        table.refresh()
    placed = find_misplaced_files(table)
    return count + (move_misplaced_files(table, placed) if placed.manifests else 0)


def _print_tables(by_name: dict[str, _Findings], *, execute: bool) -> None:
    if not by_name:
        return
    title = "to repair" if execute else "what would be repaired"
    grid = Grid("table", "what", "columns", "delete files", "data files", "manifests", title=title)
    for name, findings in sorted(by_name.items()):
        bounds, placed = findings.bounds, findings.placed
        if bounds.manifests:
            counts = (bounds.delete_files, bounds.data_files, len(bounds.manifests))
            grid.add_row(name, "bounds", ", ".join(bounds.columns), *map(str, counts))
        if placed.manifests:
            counts = (placed.delete_files, placed.data_files, len(placed.manifests))
            grid.add_row(name, "partitions", ", ".join(placed.columns), *map(str, counts))
    open_console().print(grid)
