"""Stored offsets of a sink, and what they are to be -> the offsets table and a snapshot of each table.

The command line and the REST interface share it. The sink may not run meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import attrs

from connector.errors import ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.java import Driver
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.consumer_group import ConsumerGroup
from connector.runtime.retry import call_with_retries
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from connector.sink.microbatch.start_offsets import ClusterState

ResetTarget = Literal["earliest", "latest", "group", "tables", "stored"]


def open_state(driver: Driver, settings: SinkSettings) -> tuple[OffsetsTable, IcebergTables]:
    """Open offsets table and tables; the latter as they are, whatever was noted of them."""
    catalog = Catalog(driver, settings.catalog, settings.errors)
    targets = IcebergTables(settings, catalog, writes=False)
    return OffsetsTable(catalog, settings.table.offsets_table, settings.name), targets


def replace_offsets(
    settings: SinkSettings,
    offsets: OffsetsTable,
    targets: IcebergTables,
    cluster_state: ClusterState,
    wanted: KafkaOffsets,
    *,
    moved: Collection[TopicPartition],
    topics: tuple[str, ...] = (),
    keeps_tables: bool = False,
) -> None:
    """Store offsets in the offsets table, and in each table by a snapshot without files.

    Tables of other topics than those that are named stay as they are, and so does what is noted of them: a rollback of
    one of these stops the sink as before.

    Args:
        settings: of the sink.
        offsets: its offsets table.
        targets: its tables.
        cluster_state: the cluster as it is now.
        wanted: where reading is to continue.
        moved: what is read from another place on. Elsewhere a table that is ahead of the sink's own offsets, as after a
            crash, stays there.
        topics: of these the tables forget how far their sources had come; of all where none is named.
        keeps_tables: tables keep what their own snapshots say.

    Raises:
        ConnectorError: catalog or cluster are away.
    """
    before = offsets.tables
    existing = [targets[name] for name in targets.find_existing(cluster_state.topics)]
    positions = {t.table.name: [t.stored.position, *_noted_position(before, t.table.name)] for t in existing}
    written = [t for t in existing if t.stored.position.offsets and _tells_of(positions[t.table.name], topics)]
    done = [
        _stored_commit(t) if keeps_tables else _reset_table(t, wanted, settings.name, topics, moved) for t in written
    ]
    noted = dict(zip((t.table.name for t in written), done, strict=True))
    asked = topics or tuple(cluster_state.topics)
    left = {
        name: commit
        for name, commit in before.items()
        if commit.position.offsets and not _tells_of([commit.position], asked)
    }
    call_with_retries(lambda: offsets.replace(wanted, {**left, **noted}), settings.errors)


def _noted_position(noted: Mapping[str, StoredCommit], table: str) -> list[KafkaOffsets]:
    return [noted[table].position] if table in noted else []


def _tells_of(positions: Iterable[KafkaOffsets], topics: tuple[str, ...]) -> bool:
    """Tell whether positions of a table have one of these topics, or any where none is named."""
    return not topics or any(topic in topics for position in positions for topic, _ in position.offsets)


def find_new_offsets(
    settings: SinkSettings, offsets: OffsetsTable, cluster_state: ClusterState, to: ResetTarget, targets: IcebergTables
) -> Mapping[TopicPartition, int]:
    """Return where each topic-partition would begin."""
    before = offsets.position or KafkaOffsets()
    if to == "latest":
        return cluster_state.ends
    if to == "stored":
        return {**cluster_state.beginnings, **{at: o for at, o in before.offsets.items() if at in cluster_state.ends}}
    if to == "group":
        return {**cluster_state.beginnings, **_group_offsets(settings, cluster_state)}
    return (
        _table_offsets(before, offsets.tables, cluster_state, targets) if to == "tables" else cluster_state.beginnings
    )


def _group_offsets(settings: SinkSettings, cluster_state: ClusterState) -> dict[TopicPartition, int]:
    group = ConsumerGroup(settings.kafka)
    try:
        return call_with_retries(lambda: group.fetch_committed(cluster_state.ends), settings.errors)
    finally:
        group.close()


def _table_offsets(
    before: KafkaOffsets, noted: Collection[str], cluster_state: ClusterState, targets: IcebergTables
) -> dict[TopicPartition, int]:
    """Return the lowest offset at which a table of the topic stands; the oldest where the table is gone."""
    routes = targets.find(cluster_state.topics)
    result: dict[TopicPartition, int] = {}
    for at, oldest in cluster_state.beginnings.items():
        own = [routes[at[0]]] if at[0] in routes else targets.list_routed()
        gone = not own and targets.full_name(at[0]) in noted
        stands = [targets[name].stored.position.offsets.get(at, oldest) for name in own]
        result[at] = min(stands) if stands else oldest if gone else before.offsets.get(at, oldest)
    return result


def merge_offsets(
    before: KafkaOffsets,
    cluster_state: ClusterState,
    fresh: Mapping[TopicPartition, int],
    topics: tuple[str, ...],
    *,
    moves: bool = True,
) -> KafkaOffsets:
    """Return the offsets of all topic-partitions there are: fresh ones of `topics` (none: of all), else as before.

    Those of topics that are not there, or not read now, stay. Offsets are of a cluster, and of topics by their ids:
    those as before, and without `moves` the fresh ones too, stay offsets of what they were stored for, so that a topic
    that was made again stops the sink as before.

    Raises:
        ConfigError: the sink reads no such topic; or offsets that stay are of another cluster.
    """
    unknown = sorted(set(topics) - cluster_state.topics.keys())
    if unknown:
        reads = ", ".join(sorted(cluster_state.topics))
        raise ConfigError(f"--topic {', '.join(unknown)}: not a topic that this sink reads; it reads {reads}")
    chosen = {at: offset for at, offset in fresh.items() if _is_chosen(at, topics)}
    kept = {at: offset for at, offset in before.offsets.items() if at in cluster_state.ends and at not in chosen}
    staying = {topic for topic, _ in (kept if moves else {**kept, **chosen}) if topic in before.partitions}
    if before.cluster_id in ("", cluster_state.cluster_id):
        # Those of topics that are not read now, or not there, are none of what is reset.
        away = {at: offset for at, offset in before.offsets.items() if at[0] not in cluster_state.topics}
        kept, staying = {**kept, **away}, staying | {topic for topic, _ in away}
    elif staying:
        raise ConfigError(
            f"the stored offsets are of Kafka cluster {before.cluster_id}, this is {cluster_state.cluster_id}: none of "
            "them can stay; reset all topics to earliest or latest"
        )
    ids = {name: topic.id for name, topic in cluster_state.topics.items()}
    own = {topic: before.topic_ids[topic] for topic in staying if before.topic_ids.get(topic)}
    return KafkaOffsets(cluster_state.cluster_id, {**ids, **own}, {**kept, **chosen})


def _is_chosen(at: TopicPartition, topics: tuple[str, ...]) -> bool:
    return not topics or at[0] in topics


def _reset_table(
    target: TargetTable, wanted: KafkaOffsets, name: str, topics: tuple[str, ...], moved: Collection[TopicPartition]
) -> StoredCommit:
    """Say the new position in a snapshot of the table's own, one without files."""
    stored = target.stored.position
    kept = {at: dates for at, dates in stored.watermarks.items() if not _is_chosen(at, topics)}
    own, ahead = wanted.only({topic for topic, _ in stored.offsets}), stored.advance(wanted).offsets
    places = {at: o if at in moved and _is_chosen(at, topics) else ahead[at] for at, o in own.offsets.items()}
    position = attrs.evolve(own, offsets=places, watermarks=kept)
    pending = PendingCommit([], position, target.stored, target.base, guarded=False, replaces=False)
    done = commit_files(target.table, pending, name)
    return StoredCommit(position, target.table.uuid, done.snapshot_id, done.sequence_number)


def _stored_commit(target: TargetTable) -> StoredCommit:
    stored = target.stored
    return StoredCommit(stored.position, target.table.uuid, None, stored.sequence_number)
