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
    for record in islice(iterate(with_rows), ROWS):
        grid.add_row(*(_text(record.getField(name)) for name in shown))
    with_rows.close()
    console.print(grid)


def show_commits(console: Console, tables: list[Table], name: str) -> None:
    """Print the newest commits of each table, each with the Kafka offsets that it reaches."""
    grid = make_grid("table", "operation", "rows added", "delete files", OFFSETS, title="commits, newest first")
    for table in tables:
        for snapshot in islice(table.ancestors(), COMMITS):
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            position = KafkaOffsets.from_summary(summary, name)
            if snapshot.summary is None or position is None:
                continue
            offsets = ", ".join(f"{partition}: {offset}" for (_, partition), offset in sorted(position.offsets.items()))
            added, deletes = summary.get("added-records", "0"), summary.get("added-delete-files", "0")
            operation = snapshot.summary.operation.value
            grid.add_row(table.name, operation, added, deletes, offsets)
    console.print(grid)


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
        "1. Events that Debezium recorded went through a Kafka broker into Iceberg tables:",
        "   a row per key, deleted ones kept and marked.",
        "2. Iceberg tables were changed by SQL; the changes went out as Debezium events,",
        "   and into replicas that are equal.",
        "3. The same events became documents of OpenSearch indexes.",
    ):
        console.print(line, highlight=False)
    console.rule("what next")
    command, sink = _find_command(), _shorten(home / "sink.properties")
    for tried, what in (
        (f"{command} demo", "again: what was read is not read twice"),
        (f"{command} validate {sink}", "the first sink's settings"),
        (f"{command} maintain {sink}", "its tables' files"),
        ("config/iceberg-sink.properties", "every option, for a sink of your own"),
        ("docs/how-to/README.md", "what else it does, task by task"),
    ):
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


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
