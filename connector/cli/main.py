"""The command line -> the command that it names; each is declared below `commands`, without heavy imports."""

from __future__ import annotations

import click

from connector.cli.commands import connectors, dead_letters, offsets, tables, workplace

COMMANDS: tuple[click.Command, ...] = (
    connectors.run,
    connectors.serve,
    connectors.validate,
    connectors.status,
    connectors.doctor,
    offsets.offsets,
    tables.repair,
    tables.maintain,
    tables.reindex,
    dead_letters.dlq,
    workplace.connect_config,
    workplace.jars,
    workplace.package,
    workplace.demo,
)


@click.group(commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="icebridge")
def main() -> None:
    """Apply Debezium events from Kafka to Iceberg or OpenSearch, exactly once; publish changes of Iceberg tables."""
