"""Tables -> what a person sees of them: a few rows, and their commits with offsets."""

from __future__ import annotations

import shutil
import sys
from itertools import islice
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import OFFSETS
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.java import iterate, jvm

ROWS = 5
COLUMNS = 8
WIDTH = 22
COMMITS = 3
_SORTED = 1000
"""Of so many rows the first by their keys are shown."""
_NARROW = 100
"""Below so many characters a table shows fewer columns."""


def show_rows(console: Console, spark: SparkSession, table: Table) -> None:
    """Print the first rows and columns, read by Iceberg's own reader (Spark's has no type for `time` columns)."""
    names = [field.name() for field in table.java.schema().columns()]
    data = [name for name in names if not name.startswith("__")]
    shown = [*data[: COLUMNS - 2 if console.width >= _NARROW else COLUMNS // 2 - 1], "__op", "__deleted"]
    shown = [name for name in shown if name in names]
    grid = make_grid(*shown, title=f"{table.name} ({len(names)} columns)")
    with_rows = jvm(spark).org.apache.iceberg.data.IcebergGenerics.read(table.java).build()
    rows = [[record.getField(name) for name in shown] for record in islice(iterate(with_rows), _SORTED)]
    with_rows.close()
    for row in sorted(rows, key=_order)[:ROWS]:
        grid.add_row(*map(_text, row))
    console.print(grid)


def show_commits(console: Console, tables: list[Table], name: str) -> None:
    """Print the newest commits of each table, each with the Kafka offsets that it reaches."""
    grid = make_grid("table", "operation", "rows", "deletes", "Kafka offsets", title="commits, newest first")
    for table in tables:
        for snapshot in islice(table.ancestors(), COMMITS):
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            position = KafkaOffsets.from_summary(summary, name)
            if snapshot.summary is None or position is None:
                continue
            offsets = ", ".join(f"{partition}: {offset}" for (_, partition), offset in sorted(position.offsets.items()))
            added, deletes = summary.get("added-records", "0"), summary.get("added-delete-files", "0")
            operation = snapshot.summary.operation.value
            # The namespace is in the titles above; a narrow terminal has no room for it here.
            grid.add_row(table.name.rpartition(".")[2], operation, added, deletes, offsets)
    console.print(grid)
    console.print(f"[dim]The next run goes on there: they are in each commit ({OFFSETS}).[/]")


def make_grid(*columns: str, title: str) -> Grid:
    """Return a table whose cells fold where the terminal is narrow."""
    grid = Grid(title=title, title_justify="left", title_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    return grid


def show_summary(console: Console, home: Path) -> None:
    """Say what was done, and what to try next."""
    console.rule("what happened")
    for line in (
        "1. Events that Debezium recorded went through Kafka into Iceberg tables:",
        "   one row per key, deleted rows kept and marked.",
        "2. Iceberg tables were changed by SQL; the changes went out as Debezium events,",
        "   and into replicas that are equal.",
        "3. The same events became documents of OpenSearch indexes.",
    ):
        console.print(line, highlight=False)
    console.rule("what next")
    command, sink = _find_command(), _shorten(home / "sink.properties")
    commands = (
        (f"{command} demo", "again: what was read is not read twice"),
        (f"{command} validate {sink}", "the first sink's settings"),
        (f"{command} maintain {sink}", "its tables' files, and what maintenance would do"),
    )
    # Of a checkout; a wheel has no pages.
    pages = (
        ("docs/tutorial.md", "PostgreSQL, Debezium and Grafana by Docker, in ten minutes"),
        ("docs/how-to/debezium-stack.md", "your own topics: the first file of a sink"),
        ("docs/how-to/README.md", "what else it does, task by task"),
    )
    for tried, what in (*commands, *(page for page in pages if Path(page[0]).exists())):
        console.print(f"  {tried}\n      [dim]{what}[/]", highlight=False)
    console.print(f"Everything is below {home} and may be deleted: {size_mb(home)} MB", highlight=False)


def size_mb(folder: Path) -> int:
    """Return the size of a folder's files in MB."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1_000_000


def _find_command() -> str:
    """Return how one calls this program here: by its name, or where no environment is active by its path."""
    return "icebridge" if shutil.which("icebridge") else _shorten(Path(sys.executable).parent / "icebridge")


def _shorten(path: Path) -> str:
    """Return a path as one would write it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _order(row: list[object]) -> tuple[bool, float, str]:
    """Return what rows are sorted by: the first column, numbers by their size."""
    first = row[0] if row else None
    return (True, float(first), "") if isinstance(first, int | float) else (False, 0.0, str(first))


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
