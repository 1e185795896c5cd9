"""Tables of a catalog -> those whose files mislead readers, shown, and mended where told (`icebridge repair`)."""

from __future__ import annotations

from functools import partial

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from connector.errors import ConfigError
from connector.iceberg.catalog import Catalog
from connector.iceberg.mending import Harm, harm, mend
from connector.iceberg.table import Table
from connector.retry import retried
from connector.session import session
from connector.settings import SinkSettings


def repair(settings: SinkSettings, *, tables: tuple[str, ...], execute: bool) -> None:
    """Find tables with bounds by which readers leave out deletes and rows, and take those bounds out.

    Args:
        settings: a sink's; its catalog is looked through, and of it the namespace of its tables.
        tables: only these, with their namespace where it is another; all of the namespace by default.
        execute: do it; without this only what would be done is shown.

    Raises:
        ConfigError: there is no such table.
    """
    with session(settings) as spark:
        catalog = Catalog(spark, settings.catalog, settings.errors)
        found = {
            table.name: (table, retried(partial(harm, table), settings.errors))
            for table in _opened(catalog, settings, tables)
        }
        hurt = {name: (table, told) for name, (table, told) in found.items() if told.snapshots}
        _show({name: told for name, (_, told) in hurt.items()}, execute=execute)
        for name, (table, _) in hurt.items() if execute else ():
            click.echo(f"{name}: {retried(partial(_mended, spark, table), settings.errors)} files mended")
    if not hurt:
        click.echo(f"{len(found)} tables were looked at; nothing in them has to be repaired")
    elif not execute:
        click.echo("nothing was changed; say --execute to take those bounds out")


def _opened(catalog: Catalog, settings: SinkSettings, tables: tuple[str, ...]) -> list[Table]:
    names = tables or [name for levels, name in catalog.listed() if levels == settings.catalog.namespace]
    opened = {name: catalog.load(name) for name in names}
    missing = sorted(name for name, table in opened.items() if table is None)
    if missing:
        raise ConfigError(f"repair: there is no table {', '.join(missing)}; give its namespace too where it is another")
    return [table for table in opened.values() if table is not None]


def _mended(spark: SparkSession, table: Table) -> int:
    """Look again: another writer may have been here meanwhile."""
    table.refresh()
    found = harm(table)
    return mend(spark, table, found) if found.snapshots else 0


def _show(found: dict[str, Harm], *, execute: bool) -> None:
    if not found:
        return
    title = "bounds to take out" if execute else "bounds that would be taken out"
    grid = Grid("table", "columns", "delete files", "data files", "manifests", title=title)
    for name, told in sorted(found.items()):
        counts = (told.delete_files, told.data_files, len(told.snapshots))
        grid.add_row(name, ", ".join(told.columns), *map(str, counts))
    Console().print(grid)
