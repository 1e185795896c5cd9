"""The stored offsets of a sink, shown or reset (`icebridge offsets`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import attrs
import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from connector.cli.cluster_view import view_cluster
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.ancestry import StoredCommit
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer_group import ConsumerGroup
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_session
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.destinations.iceberg.tables import IcebergTables, TargetTable
from connector.sink.factory import inspect_cluster
from connector.sink.microbatch.start_offsets import ClusterState

ResetTarget = Literal["earliest", "latest", "group", "tables", "stored"]


def show(settings: SinkSettings) -> None:
    """Print, per topic-partition, what the offsets table says, what each table's snapshots say, and Kafka's range."""
    with view_cluster(settings) as asked, open_session(settings) as spark:
        glance = asked.result()
        seen = glance.seen
        offsets, targets = _open_state(spark, settings)
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
        offsets, targets = _open_state(spark, settings)
        written = [t for name in targets.find_existing(seen.topics) if (t := targets[name]).stored.position.offsets]
        before = offsets.position or KafkaOffsets()
        wanted = _merge_offsets(before, seen, _new_offsets(settings, offsets, seen, to, targets), topics)
        _print_reset(before, wanted, execute=execute)
        if execute:
            kept = to == "tables"
            done = [_stored_commit(t) if kept else _reset_table(t, wanted, settings.name, topics) for t in written]
            noted = dict(zip((t.table.name for t in written), done, strict=True))
            call_with_retries(lambda: offsets.replace(wanted, noted), settings.errors)


def _open_state(spark: SparkSession, settings: SinkSettings) -> tuple[OffsetsTable, IcebergTables]:
    """Open offsets table and tables; the latter as they are, whatever was noted of them."""
    catalog = Catalog(spark, settings.catalog, settings.errors)
    return OffsetsTable(catalog, settings.table.offsets_table, settings.name), IcebergTables(settings, catalog)


def _new_offsets(
    settings: SinkSettings, offsets: OffsetsTable, seen: ClusterState, to: ResetTarget, targets: IcebergTables
) -> Mapping[TopicPartition, int]:
    """Return where each topic-partition would begin."""
    before = offsets.position or KafkaOffsets()
    if to == "latest":
        return seen.ends
    if to == "stored":
        return {**seen.beginnings, **{at: o for at, o in before.offsets.items() if at in seen.ends}}
    if to == "group":
        return {**seen.beginnings, **_group_offsets(settings, seen)}
    return _table_offsets(before, offsets.tables, seen, targets) if to == "tables" else seen.beginnings


def _group_offsets(settings: SinkSettings, seen: ClusterState) -> dict[TopicPartition, int]:
    group = ConsumerGroup(settings.kafka)
    try:
        return call_with_retries(lambda: group.committed(seen.ends), settings.errors)
    finally:
        group.close()


def _table_offsets(
    before: KafkaOffsets, noted: Collection[str], seen: ClusterState, targets: IcebergTables
) -> dict[TopicPartition, int]:
    """Return the lowest offset at which a table of the topic stands; the oldest where the table is gone."""
    routes = targets.find(seen.topics)
    result: dict[TopicPartition, int] = {}
    for at, oldest in seen.beginnings.items():
        own = [routes[at[0]]] if at[0] in routes else targets.list_routed()
        gone = not own and targets.full_name(at[0]) in noted
        stands = [targets[name].stored.position.offsets.get(at, oldest) for name in own]
        result[at] = min(stands) if stands else oldest if gone else before.offsets.get(at, oldest)
    return result


def _merge_offsets(
    before: KafkaOffsets, seen: ClusterState, fresh: Mapping[TopicPartition, int], topics: tuple[str, ...]
) -> KafkaOffsets:
    chosen = {at: offset for at, offset in fresh.items() if _is_chosen(at, topics)}
    kept = {at: offset for at, offset in before.offsets.items() if at in seen.ends and at not in chosen}
    ids = {name: topic.id for name, topic in seen.topics.items()}
    return KafkaOffsets(seen.cluster_id, ids, {**kept, **chosen})


def _is_chosen(at: TopicPartition, topics: tuple[str, ...]) -> bool:
    return not topics or at[0] in topics


def _print_reset(before: KafkaOffsets, wanted: KafkaOffsets, *, execute: bool) -> None:
    grid = Grid("topic-partition", "stored", "new", title="offsets to set" if execute else "offsets that would be set")
    for at, offset in sorted(wanted.offsets.items()):
        if before.offsets.get(at) != offset:
            grid.add_row(f"{at[0]}-{at[1]}", _format_offset(before.offsets.get(at)), str(offset))
    Console().print(grid)
    if not execute:
        click.echo("nothing was changed; use --execute to set them")


def _reset_table(target: TargetTable, wanted: KafkaOffsets, name: str, topics: tuple[str, ...]) -> StoredCommit:
    """Say the new position in a snapshot of the table's own, one without files."""
    stood = target.stored.position
    kept = {at: dates for at, dates in stood.watermarks.items() if not _is_chosen(at, topics)}
    position = attrs.evolve(wanted.only({topic for topic, _ in stood.offsets}), watermarks=kept)
    pending = PendingCommit([], position, target.stored, target.base, guarded=False, replaces=False)
    done = commit_files(target.table, pending, name)
    return StoredCommit(position, target.table.uuid, done.snapshot_id, done.sequence_number)


def _stored_commit(target: TargetTable) -> StoredCommit:
    newest = target.table.snapshot_id
    place = 0 if newest is None else int(target.table.java.snapshot(newest).sequenceNumber())
    return StoredCommit(target.stored.position, target.table.uuid, newest, place)
