"""Arguments of commands -> settings; errors -> one clear message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from connector.errors import ConfigError, ConnectorError
from connector.redaction import redact
from connector.runtime.monitoring.logs import configure_logging
from connector.settings import SinkSettings, SourceSettings, load
from connector.settings.source.settings import is_source, load_source

FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
OVERRIDES = click.option(
    "-X", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property, overriding the files."
)
OUTPUT = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Text, or one document."
)
FOLDER = click.Path(file_okay=False, path_type=Path)
"""One that is there, or will be."""
EXIT_ERROR, EXIT_CONFIG = 1, 3
EXIT_CODES = """\
Exit codes: 0 done, or run, serve and maintain stopped by a signal: the next one goes on there. 1 stopped by an error,
or a check failed. 2 an unknown option, or a missing argument. 3 the configuration, or a value, cannot be used. 129
(SIGHUP), 130 (SIGINT, Ctrl-C), 143 (SIGTERM) any other command stopped by a signal before it had finished.
"""
"""Those of errors are given here, those of signals by `leave_on_signals`."""


def load_sink_settings(files: tuple[Path, ...], overrides: tuple[str, ...]) -> SinkSettings:
    """Read a sink's settings. ConfigError with every fault, or when they are those of a source."""
    settings = load_settings(files, overrides)
    if isinstance(settings, SourceSettings):
        raise ConfigError("this is the configuration of a source; give the files of a sink")
    return settings


def load_settings(files: tuple[Path, ...], overrides: tuple[str, ...]) -> SinkSettings | SourceSettings:
    """Read the settings: a source's when `connector.class` names an Iceberg source, else a sink's.

    Raises:
        ConfigError: with every fault.
    """
    given = parse_overrides(overrides)
    return load_source(files, given) if is_source(files, given) else load(files, given)


def parse_overrides(overrides: tuple[str, ...]) -> dict[str, str]:
    """Return the properties of `-X KEY=VALUE`. ConfigError with every text that is none."""
    broken = [text for text in overrides if "=" not in text or not text.split("=")[0].strip()]
    if broken:
        raise ConfigError(*(f"-X {text.split('=')[0]}: is not KEY=VALUE; write -X key=value" for text in broken))
    return {key.strip(): value for key, value in (text.split("=", 1) for text in overrides)}


@contextmanager
def report_errors() -> Iterator[None]:
    """Set logging up, and turn our errors into one clear message and an exit code."""
    configure_logging(terminal=sys.stderr.isatty())
    try:
        yield
    except ConfigError as error:
        _exit("configuration", error.faults, EXIT_CONFIG, error.notes)
    except ConnectorError as error:
        _exit(type(error).__name__, (str(error),), EXIT_ERROR)


def _exit(kind: str, lines: tuple[str, ...], code: int, notes: tuple[str, ...] = ()) -> NoReturn:
    if sys.stderr.isatty():
        for line in lines:
            click.secho(redact(line), fg="red", err=True)
        for note in notes:
            click.echo(f"note: {redact(note)}", err=True)
    else:
        import structlog

        details = {"notes": list(notes)} if notes else {}
        structlog.get_logger().error("stopped", kind=kind, faults=list(lines), **details)
    raise SystemExit(code)
