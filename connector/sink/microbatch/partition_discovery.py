"""Topic-partitions that are read -> those that have appeared beside them, and whether any has gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import structlog

from connector.errors import GapError, RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.admin import KafkaAdmin
from connector.runtime.topic_partitions import TopicPartition, nest_by_topic
from connector.sink.microbatch.start_offsets import check_appeared, check_topic_id


@attrs.define(eq=False)
class PartitionDiscovery:
    """Looks at a cluster again and again, for one stream that began at a position."""

    _cluster: KafkaAdmin
    _position: KafkaOffsets
    _missing: set[str] = attrs.field(factory=set)
    _unanswered: bool = False

    @property
    def is_unanswered(self) -> bool:
        """Whether the cluster was away when it was looked at last."""
        return self._unanswered

    def find_new(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where topic-partitions begin that have appeared; a cluster that is away is asked again.

        Raises:
            GapError: a topic has disappeared, by two looks: Spark would ask for it for minutes; or a partition has
                lost records already.
        """
        try:
            there = self._cluster.select_partitions()
            gone = {topic for topic, _ in known} - {topic for topic, _ in there}
            if gone & self._missing:
                self.check_topics(known)
            self._missing = gone
            fresh = self._cluster.fetch_beginning_offsets(sorted(there - known.keys()))
        except RetriableError as error:
            if not self._unanswered:
                structlog.get_logger().warning(
                    "the brokers do not answer: reading continues when they do", reason=str(error)
                )
            self._unanswered = True
            return {}
        self._note_answer()
        check_appeared(attrs.evolve(self._position, offsets=known), fresh)
        if fresh:
            structlog.get_logger().info("topic-partitions have appeared", offsets=nest_by_topic(fresh))
        return fresh

    def check_topics(self, known: Iterable[TopicPartition]) -> None:
        """Look for what Spark stumbles over, and says in words of its own: topics that are gone, or others.

        Raises:
            GapError: which it is.
            RetriableError, FatalError: the cluster cannot be asked.
        """
        names = sorted({topic for topic, _ in known})
        topics = self._cluster.topics(names)
        self._note_answer()
        for name in names:
            if name not in topics:
                raise GapError(
                    f"topic {name} was deleted while it was read: its unread records are gone; restart to continue "
                    "with the other topics"
                )
            check_topic_id(topics[name], self._position.topic_ids.get(name, ""))

    def _note_answer(self) -> None:
        if self._unanswered:
            structlog.get_logger().info("the brokers answer again")
        self._unanswered = False
