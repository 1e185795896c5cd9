"""Commits of a sink + Kafka's end offsets -> its state per table (`icebridge status`); the sink may be running."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Literal

import attrs
import click
import orjson
from rich.table import Column
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.cli.status.end_offsets import EndsView, explain_remade
from connector.cli.status.sink_state import SinkTable, read_state
from connector.iceberg.commit.commit_summary import SCHEMA_DRIFT_COUNT
from connector.iceberg.commit.last_commit import snapshot_summary
from connector.maintenance.table_state import FILE_FIGURES
from connector.runtime.spark.session import open_gateway
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.topic_partitions import TopicPartition, find_remade_topics
from connector.settings import SinkSettings


@attrs.frozen
class TableStatus:
    """A table's newest commit of this sink: when, how many events are not in the table yet, the drift, and its files.

    The first two are None where no commit of the sink is left in the table's history, `lag` where Kafka does not tell,
    or a topic was made again, of `files` what nobody has counted.
    """

    table: str
    snapshot_id: int | None
    committed_at: str | None
    lag: int | None
    iceberg_schema_drift_count: int
    files: Mapping[str, int | None]

    def document(self) -> dict[str, Any]:
        """Return it with its files beside the rest, without the name."""
        fields = attrs.asdict(self, filter=lambda field, _: field.name not in ("table", "files"))
        return {**fields, **self.files}


def show(
    settings: SinkSettings, starting: StartingSession, asked: Future[EndsView], *, output: Literal["text", "json"]
) -> None:
    """Print a row per table that the sink has written, or all of it as one JSON document.

    Without Kafka it is what the tables say, and a line that tells why there is no lag. `starting` is the JVM; Spark is
    not needed. `asked` is what Kafka was asked when that began to start.

    Raises:
        RetriableError: the catalog is away, or does not answer; it is asked once.
    """
    with open_gateway(starting) as driver:
        state = read_state(driver, settings, with_files=True)
    answer = asked.result()
    ends, remade = None if answer.unanswered else answer.ends, find_remade_topics(state.position.topic_ids, answer.ids)
    statuses = [_table_status(table, state.position.offsets, ends, remade) for table in state.tables]
    if output == "json":
        tables = {one.table: one.document() for one in statuses}
        unanswered = {"unanswered": answer.unanswered} if answer.unanswered else {}
        again = {"topics_made_again": remade} if remade else {}
        document = {"name": settings.name, "tables": tables, **unanswered, **again}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return
    names = ("table", "snapshot", "committed", "lag", "iceberg_schema_drift_count")
    rows = [(one.table, one.snapshot_id, one.committed_at, one.lag, one.iceberg_schema_drift_count) for one in statuses]
    _print_grid(f"{settings.name}: status", names, rows)
    _print_grid(
        f"{settings.name}: files", ("table", *FILE_FIGURES), [(one.table, *one.files.values()) for one in statuses]
    )
    for line in (*([answer.unanswered] if answer.unanswered else ()), *map(explain_remade, remade)):
        click.echo(line)


def _print_grid(title: str, names: Iterable[str], rows: Iterable[tuple[object, ...]]) -> None:
    # In a narrow window, or none, a number that is cut off is worse than one on two lines.
    grid = Grid(*(Column(name, overflow="fold") for name in names), title=title)
    for row in rows:
        grid.add_row(*("-" if value is None else str(value) for value in row))
    open_console().print(grid)


def _count_lag(
    table: Mapping[TopicPartition, int], own: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> int:
    """Count what is not in a table yet; what the sink has read is in every table, also where it had nothing for it."""
    behind = {at: ends[at] - max(offset, own.get(at, 0)) for at, offset in table.items() if at in ends}
    return sum(max(0, count) for count in behind.values())


def _table_status(
    table: SinkTable,
    own: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
    remade: Collection[str] = (),
) -> TableStatus:
    is_of_former = any(topic in remade for topic, _ in table.noted)
    lag = None if ends is None or is_of_former else _count_lag(table.noted, own, ends)
    snapshot, files = table.snapshot, {name: getattr(table.files, name) for name in FILE_FIGURES}
    if snapshot is None:
        return TableStatus(table.name, None, None, lag, 0, files)
    drift = int(snapshot_summary(snapshot).get(SCHEMA_DRIFT_COUNT, 0))
    at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return TableStatus(table.name, snapshot.snapshot_id, at, lag, drift, files)
