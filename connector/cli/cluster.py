"""`icebridge jars` and `icebridge package` -> jars, an archive of packages, for machines without a registry."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from connector.cli.written_files import writing
from connector.runtime.jvm.jars import FOLDER, show_progress
from connector.runtime.spark.environment import archive_name, settings_for, write_archive


def fetch(components: tuple[str, ...], folder: Path | None) -> None:
    """Fetch components' jars, into a folder if one is given, and say how many bytes these are.

    Raises:
        FatalError: one cannot be downloaded, or written.
    """
    with nullcontext() if folder is None else writing(folder, "--to"):
        size = show_progress(components, folder)
    click.echo(f"{size / 1e6:.0f} MB of jars are in {folder or 'the local Maven repository'}")
    if folder is not None:
        click.echo(f"on machines without access to a registry: export {FOLDER}={folder.absolute()}")


def pack(target: Path | None) -> None:
    """Write the archive, and print the settings with which executors use it. Raises FatalError as `fetch`."""
    target = (target or Path(archive_name())).absolute()
    with writing(target, "--to"):
        size = write_archive(target)
    click.echo(f"# {target.name}: {size / 1e6:.0f} MB. Put it where all machines can read it, and use that path here.")
    for key, value in settings_for(target).items():
        click.echo(f"{key}={value}")
