"""settings + a Spark session -> a sink that is ready to run: the only place where its parts are put together."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import RetriableError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.kafka_position import Position
from connector.iceberg.state.deleted_keys_table import DeletedKeys
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.admin import Cluster
from connector.kafka.consumer.record_sizes import Sizes
from connector.kafka.consumer_group import Group
from connector.kafka.dlq.writer import DeadLetters
from connector.runtime.retry import retried
from connector.settings import SinkSettings
from connector.sink.destinations.iceberg.committer import Commits
from connector.sink.destinations.iceberg.tables import Targets
from connector.sink.destinations.opensearch.committer import Indexing
from connector.sink.destinations.opensearch.indexes import Indices
from connector.sink.microbatch.processor import Batches, Report
from connector.sink.microbatch.schema_sampling import shapes
from connector.sink.microbatch.size_estimates import Cuts
from connector.sink.microbatch.start_offsets import Seen, resume
from connector.sink.microbatch.stream import Stream
from connector.sink.model.destination import Destinations, Landing
from connector.sink.model.micro_batch import Batch


@attrs.frozen(eq=False)
class Sink:
    """A sink at its starting position; `stream.run` runs it."""

    stream: Stream
    batches: Batches
    targets: Targets | Indices
    landing: Landing

    def close(self) -> None:
        """Let go of the cluster; the Spark session is the caller's."""
        self.batches.close()


def look(cluster: Cluster) -> Seen:
    """Give the cluster as it is now.

    Raises:
        RetriableError: it is away, or no selected topic exists yet.
    """
    topics = cluster.selected()
    if not topics:
        raise RetriableError("none of the selected topics exists yet; check topics, topics.regex or the topic prefix")
    at = [(topic.name, partition) for topic in topics.values() for partition in range(topic.partitions)]
    return Seen(cluster.id(), topics, cluster.beginnings(at), cluster.ends(at))


def build(
    spark: SparkSession,
    settings: SinkSettings,
    told: Callable[[Report], None],
    seen: Seen | None = None,
    *,
    prime: bool = True,
) -> Sink:
    """Put a sink together at the position where it has to read on.

    Args:
        spark: a session whose catalog is the settings' one.
        settings: everything else.
        told: called after each batch.
        seen: the cluster, if it was looked at already.
        prime: make the tables ready that the waiting events will need.

    Raises:
        GapError: the stored position does not fit the cluster or the tables.
        RetriableError: the cluster or the catalog is away.
    """
    cluster = Cluster(settings.kafka)
    seen = seen or retried(lambda: look(cluster), settings.errors)
    catalog, offsets = retried(lambda: _opened(spark, settings), settings.errors)
    found = retried(lambda: _destinations(spark, settings, catalog, offsets, seen), settings.errors)
    targets, landing, tables = found
    noted = {name: told.position for name, told in offsets.tables.items()}
    position = resume(offsets.position, tables, noted, seen, settings.kafka.auto_offset_reset, settings.kafka.topics)
    if _begins(offsets.position, position, settings):
        # Where reading began is known before anything is committed: a crash must not begin at another "latest".
        retried(lambda: offsets.save(position, {}), settings.errors)
    letters = DeadLetters(settings.name, settings.kafka, settings.errors, cluster)
    group = Group(settings.kafka)
    batches = Batches(spark, settings, targets, landing, offsets, cluster, letters, group, position)
    if prime:
        _prime(settings, targets, batches, position, seen)
    at_start = Position(position.cluster_id, position.topic_ids, {at: position.offsets[at] for at in seen.ends})

    def process(batch: Batch) -> Report:
        report = batches.process(batch)
        told(report)
        return report

    return Sink(
        Stream(
            spark,
            settings,
            at_start,
            process,
            cluster,
            Cuts(settings.batch.max_bytes, Sizes(settings.kafka).at),
            lambda: batches.overdue,
        ),
        batches,
        targets,
        landing,
    )


def _begins(stored: Position | None, position: Position, settings: SinkSettings) -> bool:
    """Tell whether something is read, or waited for, that was not before."""
    if stored is None:
        return True
    fresh = position.offsets.keys() - stored.offsets.keys() or position.topic_ids.keys() - stored.topic_ids.keys()
    return bool(fresh) and settings.kafka.auto_offset_reset == "latest"


def _destinations(
    spark: SparkSession, settings: SinkSettings, catalog: Catalog, offsets: OffsetsTable, seen: Seen
) -> tuple[Targets | Indices, Landing, dict[str, Position]]:
    """Give the sink's tables or indexes, how batches land there, and where each table says that it stands."""
    if settings.search is not None:
        stood = {name: told.position for name, told in offsets.tables.items()}
        indices = Indices(settings, settings.search, stood, _deleted_keys(spark, settings, catalog))
        indices.check({name: told.uuid for name, told in offsets.tables.items()})
        indices.find(seen.topics)
        return indices, Indexing(spark, indices, settings.search), {}
    targets = Targets(settings, catalog, offsets.tables, _deleted_keys(spark, settings, catalog))
    found = targets.all_of(seen.topics)
    stands = {targets[name].table.name: targets[name].stored.position for name in found}
    return targets, Commits(spark, targets, settings.name), stands


def _opened(spark: SparkSession, settings: SinkSettings) -> tuple[Catalog, OffsetsTable]:
    catalog = Catalog(spark, settings.catalog, settings.errors)
    return catalog, OffsetsTable(catalog, settings.table.offsets_table, settings.name)


def _deleted_keys(spark: SparkSession, settings: SinkSettings, catalog: Catalog) -> DeletedKeys | None:
    """Open the table of deleted keys where deletes leave no row."""
    rule = settings.table
    if not rule.upsert or rule.keep_deletes or not rule.deleted_keys.retention:
        return None
    return DeletedKeys(spark, catalog, rule.deleted_keys.table, settings.name, rule.deleted_keys.retention)


def _prime(settings: SinkSettings, targets: Destinations, batches: Batches, position: Position, seen: Seen) -> None:
    ends = Position(seen.cluster_id, {}, seen.ends)
    plan, _ = batches.plan(Batch(-1, position.offsets, seen.ends))
    needs = shapes(settings.kafka, plan, position, ends)
    if needs:
        structlog.get_logger().info("tables to make ready", topics=sorted({need.topic for need in needs}))
        retried(lambda: targets.satisfy(needs), settings.errors)
