"""Command lines of run, serve, validate, status and doctor -> a connector that runs, or what is known of it."""

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
)
from connector.redaction import redact
from connector.settings import SourceSettings


@click.command()
@FILES
@OVERRIDES
@click.option("--once", is_flag=True, help="Stop at the current end offsets (sink) or newest snapshots (source).")
def run(files: tuple[Path, ...], overrides: tuple[str, ...], once: bool) -> None:  # noqa: FBT001 - click's way
    """Run a sink or source.

    FILE... are properties files, or the JSON of a Kafka Connect connector; later ones override earlier ones.
    """
    from connector.cli.run import run_connector

    run_connector(files, overrides, once=once)


@click.command()
@FILES
@OVERRIDES
def serve(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Run connectors that are created by REST.

    FILE... have the settings that all of them share: brokers, catalog, Spark, listeners. A restart continues with the
    stored connectors in their states.
    """
    from connector.cli.run import serve_connectors

    serve_connectors(files, overrides)


@click.command()
@FILES
@OVERRIDES
@click.option("--connect", is_flag=True, help="Also connect to the Kafka brokers, and say what they cannot do.")
def validate(files: tuple[Path, ...], overrides: tuple[str, ...], connect: bool) -> None:  # noqa: FBT001
    """Report all configuration errors at once.

    Without --connect no server is contacted.
    """
    settings = load_settings(files, overrides)
    for note in settings.notes:
        click.echo(f"note: {redact(note)}")
    if connect:
        from connector.cli.validate import check_connections

        for line in check_connections(settings):
            click.echo(redact(line))
    click.echo(f"{settings.name}: the configuration is good")


@click.command()
@FILES
@OVERRIDES
@OUTPUT
def status(files: tuple[Path, ...], overrides: tuple[str, ...], output: Literal["text", "json"]) -> None:
    """Show the state of a sink or source in each table.

    A sink: newest commit, lag and drift. A source: published and newest snapshot, lag, and snapshots on demand. The
    connector may be running. Requests are not retried; the output names servers that do not answer.
    """
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


@click.command()
@FILES
@OVERRIDES
@OUTPUT
def doctor(files: tuple[Path, ...], overrides: tuple[str, ...], output: Literal["text", "json"]) -> None:
    """Check what a connector needs, and say what to do.

    Java, jars, broker and permissions, registry, catalog, store. Nothing is changed. Exit code 1: a check failed.
    """
    from connector.cli.doctor.report import examine

    if not examine(load_settings(files, overrides), output=output):
        raise SystemExit(EXIT_ERROR)
