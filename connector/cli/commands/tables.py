"""Command lines of repair, maintain and reindex -> tables and indexes that are put right."""

from __future__ import annotations

from pathlib import Path

import click

from connector.cli.arguments import (
    FILES,
    OVERRIDES,
    load_settings,
    load_sink_settings,
)
from connector.errors import ConfigError
from connector.settings import SourceSettings


@click.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
@click.option("--execute", is_flag=True, help="Apply the change; without it, only show what would be done.")
def repair(files: tuple[Path, ...], overrides: tuple[str, ...], tables: tuple[str, ...], execute: bool) -> None:  # noqa: FBT001
    """Repair tables with wrong uuid column bounds or partition values.

    Dry run unless --execute is given. Earlier versions wrote uuid and nanosecond column bounds that make
    Iceberg's readers skip equality deletes, so that deleted or replaced rows are visible; and they wrote rows with
    NaN, infinities or times beyond the calendar to wrong partitions, where readers do not find them. The repair
    corrects the manifests of the newest snapshot; data and delete files stay. The sink may be running.
    """
    from connector.cli.repair import repair_tables

    repair_tables(load_sink_settings(files, overrides), tables=tables, execute=execute)


@click.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
@click.option(
    "--task",
    "tasks",
    default=None,
    metavar="TASK,...",
    help="Only these: convert, rewrite, manifests, expire, orphans.",
)
@click.option("--once", is_flag=True, help="Do everything that is needed, once (the default).")
@click.option("--every", default=None, metavar="10m", help="Check at this interval, and do what is due.")
@click.option("--execute", is_flag=True, help="Apply the change; without it, only show what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each round.")
def maintain(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    tables: tuple[str, ...],
    tasks: str | None,
    once: bool,  # noqa: FBT001
    every: str | None,
    execute: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Convert deletes, merge files, expire snapshots.

    Dry run unless --execute is given. Shows files, bytes and deletes of each partition, and does in this order
    what is needed: convert equality deletes to deletion vectors, merge small files, merge manifests, expire old
    snapshots except those that a source has yet to read, delete files that no snapshot needs. The sink may be running.
    """
    from connector.cli.maintain.arguments import parse_duration, parse_tasks
    from connector.cli.maintain.rounds import Round, maintain_tables

    if once and every is not None:
        raise ConfigError("--once and --every are both given; give one of them")
    named = () if tasks is None else parse_tasks(tasks)
    asked = Round(tables, named, by_triggers=every is not None, execute=execute)
    every_s = None if every is None else parse_duration(every)
    maintain_tables(load_sink_settings(files, overrides), asked, every_s=every_s, as_json=as_json)


@click.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
def reindex(files: tuple[Path, ...], overrides: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Rebuild the indexes of a source's tables.

    They are built beside the old ones, then the alias is switched in one step. Stop the source first; afterwards it
    continues from the snapshot that was loaded.
    """
    from connector.cli.reindex import reindex_tables

    settings = load_settings(files, overrides)
    if not isinstance(settings, SourceSettings):
        raise ConfigError("reindex reads Iceberg tables; give the configuration files of a source")
    reindex_tables(settings, tables=tables)
