"""command lines of the benchmarks -> the options that several of them have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

SCALE = click.option("--scale", default=1.0, help="Multiplies all of the above; 0.02 tries whether everything works.")
OUT = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("benchmarks/results"), help="Where results go."
)
_CASE_OPTIONS = (
    click.option("--only", multiple=True, help="Name, start of a name, or pattern of cases to run; may be repeated."),
    OUT,
    click.option(
        "--work", type=click.Path(path_type=Path), default=None, help="Folder to work in (default: temporary)."
    ),
    click.option("--keep", is_flag=True, help="Keep the working folder (tables, topics, logs)."),
)


def add_case_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command be told which cases to run, and where."""
    for option in reversed(_CASE_OPTIONS):
        command = option(command)
    return command
