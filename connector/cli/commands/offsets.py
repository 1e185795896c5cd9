"""Command lines of offsets show and reset -> the stored offsets, or others."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from connector.cli.arguments import (
    FILES,
    OVERRIDES,
    load_settings,
)
from connector.errors import ConfigError
from connector.settings import SourceSettings


@click.group()
def offsets() -> None:
    """Show or reset the stored offsets of a sink or a source."""


@offsets.command("show")
@FILES
@OVERRIDES
def offsets_show(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Show the stored offsets.

    A sink's per topic-partition: in the offsets table, in its tables, in Kafka. A source's per table.
    """
    settings = load_settings(files, overrides)
    from connector.runtime.spark.session import start_gateway

    # What follows is imported beside the start of the JVM.
    with start_gateway(settings) as starting:
        if isinstance(settings, SourceSettings):
            from connector.cli.offsets import source as source_offsets

            source_offsets.show(settings, starting)
        else:
            from connector.cli.status.cluster import view_cluster

            with view_cluster(settings) as asked:
                from connector.cli.offsets import sink_positions

                sink_positions.show(settings, starting, asked)


@offsets.command("reset")
@FILES
@OVERRIDES
@click.option(
    "--to",
    type=click.Choice(["earliest", "latest", "group", "tables", "stored"]),
    default="earliest",
    show_default=True,
)
@click.option("--topic", "topics", multiple=True, help="Only this topic (sink); repeatable.")
@click.option("--table", "tables", multiple=True, help="Only this table (source); repeatable.")
@click.option("--execute", is_flag=True, help="Apply the change; without it, only show what would be done.")
def offsets_reset(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    to: Literal["earliest", "latest", "group", "tables", "stored"],
    topics: tuple[str, ...],
    tables: tuple[str, ...],
    execute: bool,  # noqa: FBT001
) -> None:
    """Reset where reading continues.

    Dry run unless --execute is given.

    Sink: earliest and latest are the start and end of the topics, group the consumer group's committed offsets;
    tables is the oldest offset found in the tables' snapshots (after a rollback or re-creation); stored keeps the
    offsets and accepts the tables' current state.

    Source: earliest removes a table's offset, so that snapshot.mode applies again; latest sets it to the newest
    snapshot.
    """
    settings = load_settings(files, overrides)
    if isinstance(settings, SourceSettings):
        if to not in ("earliest", "latest"):
            raise ConfigError(
                f"--to {to}: a source reads snapshots and has no offsets in Kafka; use earliest or latest"
            )
        if topics:
            names = ", ".join(topics)
            raise ConfigError(f"--topic {names}: is for a sink, and this is a source; name tables by --table")
        from connector.cli.offsets import source as source_offsets

        source_offsets.reset(settings, to=to, tables=tables, execute=execute)
    else:
        if tables:
            names = ", ".join(tables)
            raise ConfigError(f"--table {names}: is for a source, and this is a sink; name topics by --topic")
        from connector.cli.offsets import sink as sink_offsets

        sink_offsets.reset(settings, to=to, topics=topics, execute=execute)
