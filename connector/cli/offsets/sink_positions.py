"""The stored offsets of a sink, its tables and its topics -> a row per topic-partition (`icebridge offsets show`)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import click
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.cli.status.cluster import ClusterView
from connector.cli.status.end_offsets import explain_remade
from connector.cli.status.sink_state import SinkState, read_state
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import parse_last_commit
from connector.runtime.spark.session import open_gateway
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.topic_partitions import TopicPartition, find_remade_topics
from connector.settings import SinkSettings
from connector.sink.destinations.naming import target_name
from connector.sink.microbatch.start_offsets import ClusterState


def show(settings: SinkSettings, starting: StartingSession, asked: Future[ClusterView]) -> None:
    """Print, per topic-partition, what the offsets table says, what each table's snapshots say, and Kafka's range.

    Without Kafka its columns are empty, and a line tells why. `starting` is the JVM; Spark is not needed.
    `asked` is what Kafka was asked when that began to start.

    Raises:
        RetriableError: the catalog is away, or does not answer; it is asked once.
    """
    with open_gateway(starting) as driver:
        state, glance = read_state(driver, settings), asked.result()
        cluster_state = glance.cluster_state
        if not state.tables:
            # Where the offsets table is gone the tables themselves still tell.
            state = read_state(driver, settings, _name_tables(settings, cluster_state))
    position, tables = state.position, _read_offsets(state, settings.name)
    grid = Grid("topic-partition", "stored", "oldest", "next", "lag", "tables", title=f"{settings.name}: offsets")
    for at in sorted({*position.offsets, *cluster_state.ends}):
        grid.add_row(*_format_row(at, position, tables, cluster_state))
    open_console().print(grid)
    if glance.unanswered:
        click.echo(glance.unanswered)
    elif position.cluster_id and position.cluster_id != cluster_state.cluster_id:
        click.echo(f"the offsets are of cluster {position.cluster_id}, the cluster is {cluster_state.cluster_id}")
    ids = {name: topic.id for name, topic in cluster_state.topics.items()}
    for name in find_remade_topics(position.topic_ids, ids):
        click.echo(explain_remade(name))


def _name_tables(settings: SinkSettings, cluster_state: ClusterState) -> list[str]:
    routes = settings.table.routes
    names = (target_name(topic, settings.table) for topic in cluster_state.topics)
    return list(names if routes is None else (name for name, _ in routes.tables))


def _read_offsets(state: SinkState, name: str) -> dict[str, Mapping[TopicPartition, int]]:
    """Return the offsets of each table's newest snapshot of the sink; tables that have none are left out."""
    commits = {one.name: parse_last_commit(one.snapshot, name) for one in state.tables if one.snapshot is not None}
    return {table: commit.position.offsets for table, commit in commits.items() if commit is not None}


def _format_row(
    at: TopicPartition,
    position: KafkaOffsets,
    tables: Mapping[str, Mapping[TopicPartition, int]],
    cluster_state: ClusterState,
) -> list[str]:
    stored, end = position.offsets.get(at), cluster_state.ends.get(at)
    lag = "" if end is None else str(max(end - (cluster_state.beginnings[at] if stored is None else stored), 0))
    by_table = ", ".join(f"{name}: {offsets[at]}" for name, offsets in tables.items() if at in offsets)
    oldest = cluster_state.beginnings.get(at)
    return [f"{at[0]}-{at[1]}", format_offset(stored), format_offset(oldest), format_offset(end), lag, by_table]


def format_offset(value: int | None) -> str:
    """Return an offset as text; a dash where there is none."""
    return "-" if value is None else str(value)
