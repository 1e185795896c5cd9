"""Command lines of dlq list, show and replay -> a sink's dead letters."""

from __future__ import annotations

from pathlib import Path

import click

from connector.cli.arguments import (
    FILES,
    FOLDER,
    OVERRIDES,
    load_sink_settings,
)


@click.group()
def dlq() -> None:
    """List, show and replay a sink's dead letters."""


@dlq.command("list")
@FILES
@OVERRIDES
def dlq_list(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """List dead letters with their records and reasons."""
    from connector.cli.dlq import list_dead_letters

    list_dead_letters(load_sink_settings(files, overrides))


@dlq.command("show")
@FILES
@OVERRIDES
@click.option("--letter", required=True, help="Id of the dead letter, as in `dlq list`.")
@click.option("--save", type=FOLDER, default=None, help="Folder to write key and value to.")
def dlq_show(files: tuple[Path, ...], overrides: tuple[str, ...], letter: str, save: Path | None) -> None:
    """Print a dead letter, or save it for repair."""
    from connector.cli.dlq import show_dead_letter

    show_dead_letter(load_sink_settings(files, overrides), letter=letter, save=save)


@dlq.command("replay")
@FILES
@OVERRIDES
@click.option("--letter", "letters", multiple=True, help="Only this dead letter (id); repeatable.")
@click.option(
    "--from",
    "repaired",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Folder with repaired keys and values.",
)
@click.option("--execute", is_flag=True, help="Apply the change; without it, only show what would be done.")
def dlq_replay(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    letters: tuple[str, ...],
    repaired: Path | None,
    execute: bool,  # noqa: FBT001
) -> None:
    """Replay dead letters at their original offset.

    Dry run unless --execute is given. Stop the sink first. A record is skipped when a later record changed its key; no
    record is replayed twice.
    """
    from connector.cli.dlq import replay_dead_letters

    replay_dead_letters(load_sink_settings(files, overrides), letters=letters, repaired=repaired, execute=execute)
