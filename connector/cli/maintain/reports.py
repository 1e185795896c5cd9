"""What became of tables -> text, or one JSON document for each round."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import click
import orjson
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.maintenance.maintainer import TaskOutcome
from connector.maintenance.partitions import PartitionFiles
from connector.maintenance.table_state import TableState


@attrs.frozen
class TableReport:
    """One table: its state, which tasks have something to do and why, what was done, and its partitions.

    `failure` says why it could not be looked at, or no further.
    """

    table: str
    state: TableState | None = None
    due: dict[str, str] = attrs.field(factory=dict)
    done: Sequence[TaskOutcome] = ()
    partitions: Sequence[PartitionFiles] = ()
    failure: str | None = None

    @property
    def failures(self) -> list[str]:
        """Everything that went wrong."""
        tasks = (f"{one.task}: {one.failure}" for one in self.done if one.failure is not None)
        return [*tasks, *(() if self.failure is None else (self.failure,))]


def print_reports(reports: Sequence[TableReport], *, executed: bool, as_json: bool) -> None:
    """Print what became of tables, as text or as one JSON document."""
    if as_json:
        document = {report.table: _to_json(report) for report in reports}
        click.echo(orjson.dumps({"executed": executed, "tables": document}).decode())
        return
    console = open_console()
    columns = ("table", "partition", "data files", "small", "bytes", "equality deletes", "position deletes")
    grid = Grid(*columns, title="partitions")
    for report in reports:
        for each in report.partitions:
            deletes = f"{each.equality_deletes} in {each.equality_delete_files}"
            positions = f"{each.position_deletes} in {each.position_delete_files + each.deletion_vectors}"
            grid.add_row(
                report.table,
                each.partition,
                *(str(count) for count in (each.data_files, each.small_files, each.data_bytes)),
                deletes,
                positions,
            )
    console.print(grid)
    for report in reports:
        done = {outcome.task: outcome for outcome in report.done}
        for task, reason in report.due.items():
            click.echo(f"{report.table}: {task}: {reason}{_format_outcome(done.get(task), executed=executed)}")
        for outcome in report.done:
            if outcome.task not in report.due and outcome.failure is not None:
                click.echo(f"{report.table}: {outcome.task}: failed: {outcome.failure}")
        if report.failure is not None:
            click.echo(f"{report.table}: failed: {report.failure}")
        elif not report.due and not report.done:
            click.echo(f"{report.table}: nothing to do")
    if not executed:
        click.echo("nothing was changed; use --execute")


def _format_outcome(outcome: TaskOutcome | None, *, executed: bool) -> str:
    if outcome is None:
        return "; another process maintains the table" if executed else ""
    if outcome.failure is not None:
        return f"; failed: {outcome.failure}"
    return "; " + ", ".join(f"{name} {count}" for name, count in outcome.counts.items())


def _to_json(report: TableReport) -> dict[str, object]:
    state = report.state and attrs.asdict(report.state, filter=lambda field, _: field.name != "progress")
    return {
        "state": state,
        "failure": report.failure,
        "due": report.due,
        "done": {outcome.task: attrs.asdict(outcome) for outcome in report.done},
        "partitions": [attrs.asdict(each) for each in report.partitions],
    }
