"""How a sink is doing, table by table, as its own commits and Kafka tell (`icebridge status`); it may run meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import attrs
import click
import orjson
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from connector.iceberg.catalog import Catalog
from connector.iceberg.commit import newest, summary_of
from connector.iceberg.offsets import OffsetsTable
from connector.iceberg.position import DRIFT, Position, TopicPartition
from connector.iceberg.table import Table
from connector.kafka.cluster import Cluster
from connector.retry import retried
from connector.session import session
from connector.settings import SinkSettings
from connector.sink.build import look


@attrs.frozen
class Status:
    """A table's newest commit of this sink: when, how many events are not in the table yet, and the drift.

    The first two are None where no commit of the sink is left in the table's history.
    """

    table: str
    snapshot_id: int | None
    committed_at: str | None
    lag: int
    iceberg_schema_drift_count: int


def show(settings: SinkSettings, *, as_json: bool) -> None:
    """Print a row per table that the sink has written, or all of it as one JSON document.

    Raises:
        RetriableError: broker or catalog stayed away.
    """
    seen = retried(lambda: look(Cluster(settings.kafka)), settings.errors)
    with session(settings) as spark:
        found = retried(lambda: _found(spark, settings, seen.ends), settings.errors)
    if as_json:
        tables = {one.table: attrs.asdict(one, filter=lambda field, _: field.name != "table") for one in found}
        click.echo(orjson.dumps({"name": settings.name, "tables": tables}, option=orjson.OPT_INDENT_2).decode())
        return
    grid = Grid("table", "snapshot", "committed", "lag", "iceberg_schema_drift_count", title=f"{settings.name}: status")
    for one in found:
        row = (one.table, one.snapshot_id, one.committed_at, one.lag, one.iceberg_schema_drift_count)
        grid.add_row(*("-" if value is None else str(value) for value in row))
    Console().print(grid)


def _found(spark: SparkSession, settings: SinkSettings, ends: Mapping[TopicPartition, int]) -> list[Status]:
    catalog = Catalog(spark, settings.catalog)
    if catalog.load(settings.table.offsets_table) is None:
        return []
    stored = OffsetsTable(catalog, settings.table.offsets_table, settings.name)
    own = (stored.position or Position()).offsets
    found = []
    for name, noted in sorted(stored.tables.items(), key=lambda pair: pair[0]):
        table = catalog.load(name)
        if table is not None:
            # What the sink has read is in every table, also in those that it had nothing for.
            behind = {
                at: ends[at] - max(offset, own.get(at, 0))
                for at, offset in noted.position.offsets.items()
                if at in ends
            }
            found.append(_status(name, table, settings.name, sum(max(0, count) for count in behind.values())))
    return found


def _status(name: str, table: Table, connector: str, lag: int) -> Status:
    snapshot = newest(table, connector)
    summary = summary_of(snapshot) if snapshot else {}
    drift = int(summary.get(DRIFT, 0))
    if snapshot is None:
        return Status(name, None, None, lag, drift)
    at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return Status(name, snapshot.snapshot_id, at, lag, drift)
