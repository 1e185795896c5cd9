"""Tables -> what a person sees of them: a few rows, and their commits with offsets."""

from __future__ import annotations

from itertools import islice

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


def show_rows(console: Console, spark: SparkSession, table: Table) -> None:
    """Print the first rows and columns, read by Iceberg's own reader (Spark's has no type for `time` columns)."""
    names = [field.name() for field in table.java.schema().columns()]
    shown = [*[name for name in names if not name.startswith("__")][: COLUMNS - 2], "__op", "__deleted"]
    shown = [name for name in shown if name in names]
    grid = Grid(*shown, title=f"{table.name} ({len(names)} columns)")
    with_rows = jvm(spark).org.apache.iceberg.data.IcebergGenerics.read(table.java).build()
    for record in islice(iterate(with_rows), ROWS):
        grid.add_row(*(_text(record.getField(name)) for name in shown))
    with_rows.close()
    console.print(grid)


def show_commits(console: Console, tables: list[Table], name: str) -> None:
    """Print the newest commits of each table, each with the Kafka offsets that it reaches."""
    grid = Grid("table", "snapshot", "operation", "rows added", "delete files", OFFSETS, title="commits")
    for table in tables:
        for snapshot in islice(table.ancestors(), COMMITS):
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            position = KafkaOffsets.from_summary(summary, name)
            if snapshot.summary is None or position is None:
                continue
            offsets = ", ".join(f"{partition}: {offset}" for (_, partition), offset in sorted(position.offsets.items()))
            added, deletes = summary.get("added-records", "0"), summary.get("added-delete-files", "0")
            operation = snapshot.summary.operation.value
            grid.add_row(table.name, str(snapshot.snapshot_id), operation, added, deletes, offsets)
    console.print(grid)


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
