"""The command line: thin, it reads settings and calls what does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from connector.cli.arguments import (
    EXIT_ERROR,
    FILES,
    OUTPUT,
    OVERRIDES,
    load_settings,
    load_sink_settings,
    parse_overrides,
    report_errors,
)
from connector.errors import ConfigError
from connector.redaction import redact
from connector.runtime.stop_signals import leave_on_signals
from connector.settings import SourceSettings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="icebridge")
def main() -> None:
    """Apply Debezium events from Kafka to Iceberg or OpenSearch, exactly once; publish changes of Iceberg tables."""


@main.command()
@FILES
@OVERRIDES
@click.option("--once", is_flag=True, help="Stop at the current end offsets (sink) or newest snapshots (source).")
def run(files: tuple[Path, ...], overrides: tuple[str, ...], once: bool) -> None:  # noqa: FBT001 - click's way
    """Run a sink or source.

    FILE... are properties files, or the JSON of a Kafka Connect connector; later ones override earlier ones.
    """
    with report_errors(), leave_on_signals():
        from connector.cli.run import run_connector

        run_connector(files, overrides, once=once)


@main.command()
@FILES
@OVERRIDES
def serve(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Run connectors that are created by REST.

    FILE... have what all of them share: brokers, catalog, Spark, listeners. A restart continues with the connectors
    that were there, each as it was.
    """
    with report_errors(), leave_on_signals():
        from connector.cli.run import serve_connectors

        serve_connectors(files, overrides)


@main.command()
@FILES
@OVERRIDES
@click.option("--connect", is_flag=True, help="Also connect to the Kafka brokers, and say what they cannot do.")
def validate(files: tuple[Path, ...], overrides: tuple[str, ...], connect: bool) -> None:  # noqa: FBT001
    """Report all configuration errors at once.

    Nothing is connected to without --connect.
    """
    with report_errors():
        settings = load_settings(files, overrides)
        for note in settings.notes:
            click.echo(f"note: {redact(note)}")
        if connect:
            from connector.cli.validate import check_connections

            for line in check_connections(settings):
                click.echo(redact(line))
        click.echo(f"{settings.name}: the configuration is good")


@main.command()
@FILES
@OVERRIDES
@OUTPUT
def status(files: tuple[Path, ...], overrides: tuple[str, ...], output: Literal["text", "json"]) -> None:
    """Show where a sink or source stands in each table.

    A sink's newest commit, lag and drift; a source's snapshots, how far it is behind, and snapshots on demand. The
    connector may be running. Nothing is tried twice: what does not answer is named.
    """
    with report_errors():
        settings = load_settings(files, overrides)
        from connector.runtime.spark.session import start_gateway

        # What follows is imported beside the start of the JVM.
        with start_gateway(settings) as starting:
            if isinstance(settings, SourceSettings):
                from connector.cli.status import source as source_status

                source_status.show(settings, starting, output=output)
            else:
                from connector.cli.status.end_offsets import view_ends

                with view_ends(settings) as asked:
                    from connector.cli.status import sink as sink_status

                    sink_status.show(settings, starting, asked, output=output)


@main.command()
@FILES
@OVERRIDES
@OUTPUT
def doctor(files: tuple[Path, ...], overrides: tuple[str, ...], output: Literal["text", "json"]) -> None:
    """Check what a connector needs, and say what to do.

    Java, jars, broker and rights, registry, catalog, store. Nothing is changed. Ends with code 1 if something failed.
    """
    with report_errors():
        from connector.cli.doctor.report import examine

        if not examine(load_settings(files, overrides), output=output):
            raise SystemExit(EXIT_ERROR)


@main.group()
def offsets() -> None:
    """Show or reset the stored offsets of a sink or a source."""


@offsets.command("show")
@FILES
@OVERRIDES
def offsets_show(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Show the stored offsets.

    A sink's per topic-partition: in the offsets table, in its tables, in Kafka. A source's per table.
    """
    with report_errors():
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
    with report_errors():
        settings = load_settings(files, overrides)
        if isinstance(settings, SourceSettings):
            if to not in ("earliest", "latest"):
                raise ConfigError(
                    f"--to {to}: a source reads snapshots and has no offsets in Kafka; use earliest or latest"
                )
            from connector.cli.offsets import source as source_offsets

            source_offsets.reset(settings, to=to, tables=tables, execute=execute)
        else:
            from connector.cli.offsets import sink as sink_offsets

            sink_offsets.reset(settings, to=to, topics=topics, execute=execute)


@main.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
@click.option("--execute", is_flag=True, help="Apply the change; without it, only show what would be done.")
def repair(files: tuple[Path, ...], overrides: tuple[str, ...], tables: tuple[str, ...], execute: bool) -> None:  # noqa: FBT001
    """Repair tables with wrong uuid column bounds or partition values.

    Dry run unless --execute is given. In such tables deleted or replaced rows are still visible: earlier versions
    wrote uuid and nanosecond column bounds that make Iceberg's readers skip equality deletes; or rows are not found:
    NaN, infinities and times beyond the calendar stood in wrong partitions. The repair puts the manifests of the
    newest snapshot right; data and delete files stay. The sink may be running.
    """
    with report_errors():
        from connector.cli.repair import repair_tables

        repair_tables(load_sink_settings(files, overrides), tables=tables, execute=execute)


@main.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
@click.option(
    "--task", "tasks", default="", metavar="TASK,...", help="Only these: convert, rewrite, manifests, expire, orphans."
)
@click.option("--once", is_flag=True, help="One round, of whatever there is to do (the default).")
@click.option("--every", default=None, metavar="10m", help="A round so often, of what is due by its schedule.")
@click.option("--execute", is_flag=True, help="Apply the change; without it, only show what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each round.")
def maintain(
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    tables: tuple[str, ...],
    tasks: str,
    once: bool,  # noqa: FBT001
    every: str | None,
    execute: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Convert deletes, merge files, expire snapshots.

    Dry run unless --execute is given. Shows files, bytes and deletes of each partition, and does what is to be done, in
    this order: equality deletes become deletion vectors, small files are merged, manifests are merged, snapshots that
    no source has to read any more expire, files that no snapshot has are deleted. The sink may be running.
    """
    with report_errors():
        from connector.cli.maintain import Round, maintain_tables, parse_duration, parse_tasks

        if once and every is not None:
            raise ConfigError("--once and --every: give one of them")
        asked = Round(tables, parse_tasks(tasks), by_triggers=every is not None, execute=execute)
        every_s = None if every is None else parse_duration(every)
        maintain_tables(load_sink_settings(files, overrides), asked, every_s=every_s, as_json=as_json)


@main.group()
def dlq() -> None:
    """List, show and replay a sink's dead letters."""


@dlq.command("list")
@FILES
@OVERRIDES
def dlq_list(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """List dead letters with record and reason."""
    with report_errors():
        from connector.cli.dlq import list_dead_letters

        list_dead_letters(load_sink_settings(files, overrides))


@dlq.command("show")
@FILES
@OVERRIDES
@click.option("--letter", required=True, help="Id of the dead letter, as in `dlq list`.")
@click.option("--save", type=click.Path(path_type=Path), default=None, help="Folder to write key and value to.")
def dlq_show(files: tuple[Path, ...], overrides: tuple[str, ...], letter: str, save: Path | None) -> None:
    """Print a dead letter, or save it for repair."""
    with report_errors():
        from connector.cli.dlq import show_dead_letter

        show_dead_letter(load_sink_settings(files, overrides), letter=letter, save=save)


@dlq.command("replay")
@FILES
@OVERRIDES
@click.option("--letter", "letters", multiple=True, help="Only this dead letter (id); repeatable.")
@click.option(
    "--from", "repaired", type=click.Path(path_type=Path), default=None, help="Folder with repaired keys and values."
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
    with report_errors():
        from connector.cli.dlq import replay_dead_letters

        replay_dead_letters(load_sink_settings(files, overrides), letters=letters, repaired=repaired, execute=execute)


@main.command()
@FILES
@OVERRIDES
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
def reindex(files: tuple[Path, ...], overrides: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Rebuild the indexes of a source's tables.

    They are built beside the old ones, then the alias is switched in one step. Stop the source first; afterwards it
    continues from the snapshot that was loaded.
    """
    with report_errors():
        from connector.cli.reindex import reindex_tables

        settings = load_settings(files, overrides)
        if not isinstance(settings, SourceSettings):
            raise ConfigError("reindex reads Iceberg tables: give the configuration files of a source")
        reindex_tables(settings, tables=tables)


@main.command("connect-config")
@FILES
@OVERRIDES
def connect_config(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Print Kafka Connect's JSON for the source of a Debezium Server file.

    It is what `POST /connectors` takes; what changes on the way is told on standard error.
    """
    with report_errors():
        import orjson

        from connector.cli.connect_config import convert_files

        found = convert_files(files, parse_overrides(overrides))
        for note in found.notes:
            click.echo(f"note: {redact(note)}", err=True)
        document = {"name": found.name, "config": found.config}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


@main.command()
@click.argument("components", nargs=-1, metavar="[COMPONENT]...")
@click.option("--to", "folder", type=click.Path(path_type=Path), default=None, help="Folder to put the jars into.")
def jars(components: tuple[str, ...], folder: Path | None) -> None:
    """Fetch the jars of jars.lock.

    Those of COMPONENTs (spark, s3, gcs, adls, postgresql, mysql, mariadb, ...), else what the demo needs. The folder is
    for machines that reach no registry: ICEBRIDGE_JARS names it there.
    """
    with report_errors():
        from connector.cli.cluster import fetch

        fetch(components, folder)


@main.command()
@click.option("--to", "target", type=click.Path(path_type=Path), default=None, help="File to write.")
def package(target: Path | None) -> None:
    """Pack this Python environment for spark.archives.

    Executors that have Python and none of our packages import them from it; the settings are printed.
    """
    with report_errors():
        from connector.cli.cluster import pack

        pack(target)


@main.command()
@click.option(
    "--home", type=click.Path(path_type=Path), default=None, help="Folder for the broker's data and the tables."
)
@click.option("--fresh", is_flag=True, help="Start over: delete the data of earlier runs.")
def demo(home: Path | None, fresh: bool) -> None:  # noqa: FBT001
    """Replay recorded events into Iceberg tables.

    The events go through a local broker; the tables are printed.
    """
    with report_errors():
        from connector.demo import play

        play(home, fresh=fresh)
