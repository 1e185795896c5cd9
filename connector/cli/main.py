"""The command line -> the command that it names; each is declared below `commands`, without heavy imports.

What all commands have in common is here: an error, or a signal, is one line and an exit code.
"""

from __future__ import annotations

from typing import Any

import click

from connector.cli.arguments import EXIT_CODES, report_errors
from connector.cli.commands import connectors, dead_letters, offsets, tables, workplace
from connector.runtime.stop_signals import leave_on_signals

RESUMED: tuple[click.Command, ...] = (connectors.run, connectors.serve, tables.maintain)
"""The next run goes on where a signal ended these."""
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


class _Commands(click.Group):
    """The commands, each called so that it ends by one line and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command's name, which stands first, for `invoke`."""
        ctx.obj = self.commands.get(args[0]) if args else None
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command."""
        with report_errors(), leave_on_signals(resumes=ctx.obj in RESUMED):
            return super().invoke(ctx)


@click.group(
    cls=_Commands, commands=COMMANDS, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="icebridge")
def main() -> None:
    """Apply Debezium events from Kafka to Iceberg or OpenSearch, exactly once; publish changes of Iceberg tables."""
