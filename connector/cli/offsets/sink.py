"""The stored offsets of a sink, shown or reset (`icebridge offsets`)."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table as Grid

from connector.cli.status.cluster import view_cluster
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.admin import KafkaAdmin
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_session
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.destinations.iceberg.tables.iceberg_tables import TargetTable
from connector.sink.factory import inspect_cluster
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.offset_reset import ResetTarget, find_new_offsets, merge_offsets, open_state, replace_offsets


def show(settings: SinkSettings) -> None:
    """Print, per topic-partition, what the offsets table says, what each table's snapshots say, and Kafka's range."""
    with view_cluster(settings) as asked, open_session(settings) as spark:
        glance = asked.result()
        seen = glance.seen
        offsets, targets = open_state(spark, settings)
        position = offsets.position or KafkaOffsets()
        topics = {topic for topic, _ in position.offsets} if glance.unanswered else seen.topics
        found = [targets[name] for name in targets.find_existing(topics)]
    grid = Grid("topic-partition", "stored", "oldest", "next", "lag", "tables", title=f"{settings.name}: offsets")
    for at in sorted({*position.offsets, *seen.ends}):
        grid.add_row(*_format_row(at, position, found, seen))
    Console().print(grid)
    if glance.unanswered:
        click.echo(glance.unanswered)
    elif position.cluster_id and position.cluster_id != seen.cluster_id:
        click.echo(f"the offsets are of cluster {position.cluster_id}, the cluster is {seen.cluster_id}")


def _format_row(
    at: TopicPartition, position: KafkaOffsets, targets: list[TargetTable], seen: ClusterState
) -> list[str]:
    stored, end = position.offsets.get(at), seen.ends.get(at)
    lag = "" if end is None else str(end - (stored if stored is not None else seen.beginnings[at]))
    said = {t.table.name: t.stored.position.offsets.get(at) for t in targets}
    tables = ", ".join(f"{name}: {offset}" for name, offset in said.items() if offset is not None)
    oldest = seen.beginnings.get(at)
    return [f"{at[0]}-{at[1]}", _format_offset(stored), _format_offset(oldest), _format_offset(end), lag, tables]


def _format_offset(value: int | None) -> str:
    return "-" if value is None else str(value)


def reset(settings: SinkSettings, *, to: ResetTarget, topics: tuple[str, ...], execute: bool) -> None:
    """Reset the stored offsets of topics, in the offsets table and in every table.

    `to` earliest or latest is the oldest or next record; group is where the consumer group stands (another connector's
    of the same group, say), the oldest record where it never was. tables is where the table that is furthest behind
    stands by its own snapshots, from the start where it has none: a table that was rolled back, or dropped and made
    again, gets what it lost, and the others leave out what they have. stored changes no offset, and takes the tables
    as they are. All but tables forget how far sources had come: what comes next is taken as it comes.

    Tables keep their rows: reading from the oldest record again upserts the same rows, and appends them twice where the
    table is appended to. Without `execute` only what would be done is printed.
    """
    seen = call_with_retries(lambda: inspect_cluster(KafkaAdmin(settings.kafka)), settings.errors)
    with open_session(settings) as spark:
        offsets, targets = open_state(spark, settings)
        before = offsets.position or KafkaOffsets()
        wanted = merge_offsets(before, seen, find_new_offsets(settings, offsets, seen, to, targets), topics)
        _print_reset(before, wanted, execute=execute)
        if execute:
            kept = to == "tables"
            replace_offsets(settings, offsets, targets, seen, wanted, topics=topics, keeps_tables=kept)


def _print_reset(before: KafkaOffsets, wanted: KafkaOffsets, *, execute: bool) -> None:
    grid = Grid("topic-partition", "stored", "new", title="offsets to set" if execute else "offsets that would be set")
    for at, offset in sorted(wanted.offsets.items()):
        if before.offsets.get(at) != offset:
            grid.add_row(f"{at[0]}-{at[1]}", _format_offset(before.offsets.get(at)), str(offset))
    Console().print(grid)
    if not execute:
        click.echo("nothing was changed; use --execute to set them")
