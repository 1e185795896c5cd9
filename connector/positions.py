"""The stored offsets of a sink, shown and set anew (`icebridge offsets`)."""

from __future__ import annotations

from collections.abc import Mapping

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from connector.iceberg.catalog import Catalog
from connector.iceberg.commit import Pending, commit
from connector.iceberg.offsets import OffsetsTable
from connector.iceberg.position import Position, TopicPartition
from connector.kafka.cluster import Cluster
from connector.kafka.groups import Group
from connector.retry import retried
from connector.session import session
from connector.settings import SinkSettings
from connector.sink.build import look
from connector.sink.start import Seen
from connector.sink.targets import Target, Targets


def show(settings: SinkSettings) -> None:
    """Print, per topic-partition, what the offsets table says, what each table's snapshots say, and Kafka's range."""
    seen = retried(lambda: look(Cluster(settings.kafka)), settings.errors)
    with session(settings) as spark:
        offsets, targets = _opened(spark, settings, seen)
        position = offsets.position or Position()
    grid = Grid("topic-partition", "stored", "oldest", "next", "lag", "tables", title=f"{settings.name}: offsets")
    for at in sorted({*position.offsets, *seen.ends}):
        grid.add_row(*_row(at, position, targets, seen))
    Console().print(grid)
    if position.cluster_id and position.cluster_id != seen.cluster_id:
        click.echo(f"the offsets are of cluster {position.cluster_id}, the cluster is {seen.cluster_id}")


def _row(at: TopicPartition, position: Position, targets: dict[str, Target], seen: Seen) -> list[str]:
    stored, end = position.offsets.get(at), seen.ends.get(at)
    lag = "" if end is None else str(end - (stored if stored is not None else seen.beginnings[at]))
    said = {t.table.name: t.stored.position.offsets.get(at) for t in targets.values()}
    tables = ", ".join(f"{name}: {offset}" for name, offset in said.items() if offset is not None)
    oldest = seen.beginnings.get(at)
    return [f"{at[0]}-{at[1]}", _text(stored), _text(oldest), _text(end), lag, tables]


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)


def reset(settings: SinkSettings, *, to: str, topics: tuple[str, ...], execute: bool) -> None:
    """Set the stored position of topics anew, in the offsets table and in every table.

    `to` earliest or latest is the oldest or next record; group is where the consumer group stands (another connector's
    of the same group, say), the oldest record where it never was.

    Tables keep their rows: reading from the oldest record again upserts the same rows, and appends them twice where the
    table is appended to. Without `execute` only what would be done is printed.
    """
    seen = retried(lambda: look(Cluster(settings.kafka)), settings.errors)
    with session(settings) as spark:
        offsets, targets = _opened(spark, settings, seen)
        wanted = _wanted(
            offsets.position or Position(), seen, to=to, topics=topics, group=_of_group(settings, seen, to)
        )
        _announce(offsets.position or Position(), wanted, execute=execute)
        if not execute:
            return
        for target in targets.values():
            if target.stored.position.offsets:
                _reset_table(target, wanted, settings.name)
        tables = {t.table.name: t.stored.position for t in targets.values() if t.stored.position.offsets}
        offsets.replace(wanted, {name: _over(position, wanted) for name, position in tables.items()})


def _opened(spark: SparkSession, settings: SinkSettings, seen: Seen) -> tuple[OffsetsTable, dict[str, Target]]:
    catalog = Catalog(spark, settings.catalog)
    offsets = OffsetsTable(catalog, settings.table.offsets_table, settings.name)
    targets = Targets(settings, catalog)
    return offsets, {name: targets[name] for name in targets.all_of(seen.topics)}


def _of_group(settings: SinkSettings, seen: Seen, to: str) -> dict[TopicPartition, int]:
    if to != "group":
        return {}
    group = Group(settings.kafka)
    try:
        return retried(lambda: group.committed(seen.ends), settings.errors)
    finally:
        group.close()


def _wanted(
    before: Position, seen: Seen, *, to: str, topics: tuple[str, ...], group: Mapping[TopicPartition, int]
) -> Position:
    fresh = seen.ends if to == "latest" else {**seen.beginnings, **group}
    chosen = {at: offset for at, offset in fresh.items() if _is_chosen(at, topics)}
    kept = {at: offset for at, offset in before.offsets.items() if at in seen.ends and at not in chosen}
    ids = {name: topic.id for name, topic in seen.topics.items()}
    return Position(seen.cluster_id, ids, {**kept, **chosen})


def _is_chosen(at: TopicPartition, topics: tuple[str, ...]) -> bool:
    return not topics or at[0] in topics


def _announce(before: Position, wanted: Position, *, execute: bool) -> None:
    grid = Grid("topic-partition", "stored", "new", title="offsets to set" if execute else "offsets that would be set")
    for at, offset in sorted(wanted.offsets.items()):
        if before.offsets.get(at) != offset:
            grid.add_row(f"{at[0]}-{at[1]}", _text(before.offsets.get(at)), str(offset))
    Console().print(grid)
    if not execute:
        click.echo("nothing was changed; say --execute to set them")


def _over(position: Position, wanted: Position) -> Position:
    topics = {topic for topic, _ in position.offsets}
    return wanted.only(topics)


def _reset_table(target: Target, wanted: Position, name: str) -> None:
    """Say the new position in a snapshot of the table's own, one without files."""
    pending = Pending(
        [], _over(target.stored.position, wanted), target.stored, target.base, guarded=False, replaces=False
    )
    commit(target.table, pending, name)
