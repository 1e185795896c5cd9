"""The command line: thin, it reads settings and calls what does the work.

Exit codes: 0 done, 1 stopped by an error, 3 the configuration cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NoReturn

import click

from connector.errors import ConfigError, ConnectorError
from connector.redaction import redact
from connector.runtime.monitoring.logs import configure_logging
from connector.settings import SinkSettings, SourceSettings, load
from connector.settings.source import settings as source_settings

FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
OVERRIDES = click.option(
    "-X", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property over those of the files."
)
EXIT_ERROR, EXIT_CONFIG = 1, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="icebridge")
def main() -> None:
    """Debezium events from Kafka into Iceberg tables, exactly once; changes of Iceberg tables to Kafka."""


@main.command()
@FILES
@OVERRIDES
@click.option("--once", is_flag=True, help="Stop at the offsets, or snapshots, that there are now.")
def run(files: tuple[Path, ...], overrides: tuple[str, ...], once: bool) -> None:  # noqa: FBT001 - click's way
    """Run the sink or source that FILE... configure; later files win over earlier ones."""
    with report_errors():
        settings = load_settings(files, overrides)
        terminal = sys.stderr.isatty()
        if isinstance(settings, SourceSettings):
            from connector.source import runner

            runner.run(settings, once=once, terminal=terminal)
        else:
            from connector.sink import runner as runs

            runs.run_sink(settings, once=once, terminal=terminal)


@main.command()
@FILES
@OVERRIDES
def validate(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Check FILE... and say all that is wrong with them; nothing is connected to."""
    with report_errors():
        settings = load_settings(files, overrides)
        for note in settings.notes:
            click.echo(f"note: {redact(note)}")
        click.echo(f"{settings.name}: the configuration is good")


@main.command()
@FILES
@OVERRIDES
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def status(files: tuple[Path, ...], overrides: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Show the tables that a sink writes: newest commit, events that are not in them yet, schema drift.

    The sink may run meanwhile.
    """
    with report_errors():
        from connector.cli import status as shown

        shown.show(load_sink_settings(files, overrides), as_json=as_json)


@main.group()
def offsets() -> None:
    """Look at the stored offsets of a sink or the positions of a source, or set them anew."""


@offsets.command("show")
@FILES
@OVERRIDES
def offsets_show(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Show where the sink stands (by the offsets table, by its tables, in Kafka), or the source in each table."""
    with report_errors():
        settings = load_settings(files, overrides)
        if isinstance(settings, SourceSettings):
            from connector.cli import source_offsets

            source_offsets.show(settings)
        else:
            from connector.cli import sink_offsets

            sink_offsets.show(settings)


@offsets.command("reset")
@FILES
@OVERRIDES
@click.option(
    "--to",
    type=click.Choice(["earliest", "latest", "group", "tables", "stored"]),
    default="earliest",
    show_default=True,
)
@click.option("--topic", "topics", multiple=True, help="Only this topic (sink); may be given several times.")
@click.option("--table", "tables", multiple=True, help="Only this table (source); may be given several times.")
@click.option("--execute", is_flag=True, help="Do it; without this only what would be done is shown.")
def offsets_reset(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    to: Literal["earliest", "latest", "group", "tables", "stored"],
    topics: tuple[str, ...],
    tables: tuple[str, ...],
    execute: bool,  # noqa: FBT001
) -> None:
    """Read topics from their start, end, or where the consumer group stands; a dry run unless told.

    tables goes back to where the tables stand by their own snapshots, for one that was rolled back or made again;
    stored changes no offset, and takes the tables as they are.

    For a source, earliest forgets a table's position, so that snapshot.mode decides anew; latest sets it to the newest
    snapshot.
    """
    with report_errors():
        settings = load_settings(files, overrides)
        if isinstance(settings, SourceSettings):
            if to not in ("earliest", "latest"):
                raise ConfigError(
                    f"--to {to}: a source reads snapshots, and has no offsets in Kafka; say earliest or latest"
                )
            from connector.cli import source_offsets

            source_offsets.reset(settings, to=to, tables=tables, execute=execute)
        else:
            from connector.cli import sink_offsets

            sink_offsets.reset(settings, to=to, topics=topics, execute=execute)


@main.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; may be given several times.")
@click.option("--execute", is_flag=True, help="Do it; without this only what would be done is shown.")
def repair(files: tuple[Path, ...], overrides: tuple[str, ...], tables: tuple[str, ...], execute: bool) -> None:  # noqa: FBT001
    """Find tables in which deleted or replaced rows show, and mend them; a dry run unless told.

    Earlier versions wrote bounds of uuids (and of nanoseconds) by which Iceberg's readers leave equality deletes out.
    The bounds are taken out of the manifests of the newest snapshot; data and delete files stay. The sink may run.
    """
    with report_errors():
        from connector.cli import repair as repairing

        repairing.repair(load_sink_settings(files, overrides), tables=tables, execute=execute)


@main.group()
def dlq() -> None:
    """Look at a sink's dead letters, and put repaired ones through again."""


@dlq.command("list")
@FILES
@OVERRIDES
def dlq_list(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """List the dead letters: where their records stood, why they are dead, which were put through again."""
    with report_errors():
        from connector.cli import dlq as dead_letters

        dead_letters.list_dead_letters(load_sink_settings(files, overrides))


@dlq.command("show")
@FILES
@OVERRIDES
@click.option("--letter", required=True, help="The letter, as the list names it.")
@click.option("--save", type=click.Path(path_type=Path), default=None, help="Folder to save key and value in.")
def dlq_show(files: tuple[Path, ...], overrides: tuple[str, ...], letter: str, save: Path | None) -> None:
    """Show one dead letter whole, or save its key and value to be repaired."""
    with report_errors():
        from connector.cli import dlq as dead_letters

        dead_letters.show_dead_letter(load_sink_settings(files, overrides), letter=letter, save=save)


@dlq.command("replay")
@FILES
@OVERRIDES
@click.option("--letter", "letters", multiple=True, help="Only this letter; may be given several times.")
@click.option("--from", "repaired", type=click.Path(path_type=Path), default=None, help="Folder of repaired letters.")
@click.option("--execute", is_flag=True, help="Do it; without this only what would be done is shown.")
def dlq_replay(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    letters: tuple[str, ...],
    repaired: Path | None,
    execute: bool,  # noqa: FBT001
) -> None:
    """Put dead letters through again, as if they had come in their place; a dry run unless told. Stop the sink first.

    A letter whose key a later record changed is left out; none is put through twice.
    """
    with report_errors():
        from connector.cli import dlq as dead_letters

        dead_letters.replay(load_sink_settings(files, overrides), letters=letters, repaired=repaired, execute=execute)


@main.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; may be given several times.")
def reindex(files: tuple[Path, ...], overrides: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Build the indexes of a source's tables anew, beside the old ones, and swap them in one step.

    The source, which must not run meanwhile, then goes on from the snapshot that was loaded.
    """
    with report_errors():
        from connector.cli import reindex as reindexing

        settings = load_settings(files, overrides)
        if not isinstance(settings, SourceSettings):
            raise ConfigError("reindex reads Iceberg tables: name the files of a source")
        reindexing.reindex(settings, tables=tables)


@main.command()
@click.option("--home", type=click.Path(path_type=Path), default=None, help="Folder of broker and tables.")
@click.option("--fresh", is_flag=True, help="Begin anew: forget broker and tables of earlier runs.")
def demo(home: Path | None, fresh: bool) -> None:  # noqa: FBT001
    """Replay recorded Debezium events through a broker of its own into Iceberg tables, and show them."""
    with report_errors():
        from connector.demo import play

        play(home, fresh=fresh)


def load_sink_settings(files: tuple[Path, ...], overrides: tuple[str, ...]) -> SinkSettings:
    """Read a sink's settings. ConfigError with every fault, or when they are those of a source."""
    settings = load_settings(files, overrides)
    if isinstance(settings, SourceSettings):
        raise ConfigError("these are the files of a source; name those of a sink")
    return settings


def load_settings(files: tuple[Path, ...], overrides: tuple[str, ...]) -> SinkSettings | SourceSettings:
    """Read the settings: a source's when `connector.class` names an Iceberg source, else a sink's.

    Raises:
        ConfigError: with every fault.
    """
    broken = [text for text in overrides if "=" not in text]
    if broken:
        raise ConfigError(*(f"-X {text.split('=')[0]}: is not KEY=VALUE; write -X key=value" for text in broken))
    given = {key.strip(): value for key, value in (text.split("=", 1) for text in overrides)}
    return source_settings.load(files, given) if source_settings.is_source(files, given) else load(files, given)


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

        told = {"notes": list(notes)} if notes else {}
        structlog.get_logger().error("stopped", kind=kind, faults=list(lines), **told)
    raise SystemExit(code)
