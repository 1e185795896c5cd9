"""Command lines of connect-config, jars, package and demo -> what is needed around connectors."""

from __future__ import annotations

from pathlib import Path

import click

from connector.cli.arguments import (
    FILES,
    FOLDER,
    OVERRIDES,
    parse_overrides,
)
from connector.redaction import redact


@click.command("connect-config")
@FILES
@OVERRIDES
def connect_config(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Print Kafka Connect's JSON for the source of a Debezium Server file.

    The output is the body for `POST /connectors`; notes on standard error say what was changed or left out.
    """
    import orjson

    from connector.cli.connect_config import convert_files

    configuration = convert_files(files, parse_overrides(overrides))
    for note in configuration.notes:
        click.echo(f"note: {redact(note)}", err=True)
    document = {"name": configuration.name, "config": configuration.config}
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


@click.command()
@click.argument("components", nargs=-1, metavar="[COMPONENT]...")
@click.option("--to", "folder", type=FOLDER, default=None, help="Folder to put the jars into.")
def jars(components: tuple[str, ...], folder: Path | None) -> None:
    """Fetch the jars of jars.lock.

    Those of the COMPONENTs (spark, s3, gcs, adls, postgresql, mysql, mariadb, ...), by default those of the demo. On
    machines without access to a registry, set ICEBRIDGE_JARS to a copy of the folder.
    """
    from connector.cli.cluster import fetch

    fetch(components, folder)


@click.command()
@click.option("--to", "target", type=click.Path(dir_okay=False, path_type=Path), default=None, help="File to write.")
def package(target: Path | None) -> None:
    """Pack this Python environment for spark.archives.

    Executors that have only Python import the packages from this archive. The settings for this are printed.
    """
    from connector.cli.cluster import pack

    pack(target)


@click.command()
@click.option("--home", type=FOLDER, default=None, help="Folder for the broker's data and the tables.")
@click.option("--fresh", is_flag=True, help="Start over: delete the data of earlier runs.")
def demo(home: Path | None, fresh: bool) -> None:  # noqa: FBT001
    """Replay recorded events into Iceberg tables.

    The events go through a local broker; the tables are printed.
    """
    from connector.demo.demo import play

    play(home, fresh=fresh)
