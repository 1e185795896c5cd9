"""The cluster -> the selected topics, and where each topic-partition begins and ends. On the driver."""

from __future__ import annotations

from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.sink.microbatch.start_offsets import ClusterState


class NoTopics(RetriableError):
    """There is nothing to read yet: a connector that makes topics begins before or after us."""


def inspect_cluster(cluster: KafkaAdmin) -> ClusterState:
    """Return the cluster as it is now.

    Raises:
        RetriableError: it is away.
        NoTopics: no selected topic exists yet.
    """
    topics = cluster.select_topics()
    if not topics:
        raise NoTopics("none of the selected topics exists yet; check topics, topics.regex or the topic prefix")
    at = [(topic.name, partition) for topic in topics.values() for partition in range(topic.partitions)]
    beginnings, ends = cluster.fetch_beginning_offsets(at), cluster.fetch_end_offsets(at)
    return ClusterState(cluster.id(), topics, beginnings, ends, cluster.fetch_log_ends(at))
