"""Where a connector stands in Kafka, as snapshot summaries and the offsets table hold it (pure).

Design, section 5: the summary of every commit carries the connector's name, the cluster and topic ids, and the end
offset of each topic-partition; the newest ancestor with the connector's name counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import orjson

TopicPartition = tuple[str, int]

NAME = "icebridge.name"
COMMIT_ID = "icebridge.commit-id"
CLUSTER_ID = "icebridge.kafka.cluster-id"
TOPIC_IDS = "icebridge.kafka.topic-ids"
OFFSETS = "icebridge.kafka.offsets"


@attrs.frozen
class Position:
    """The next offset to read of each topic-partition, and the ids of the cluster and topics that these belong to."""

    cluster_id: str = ""
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)
    offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    def advanced(self, other: Position) -> Position:
        """Give this position moved on to `other`, which knows some or all of the topic-partitions."""
        return Position(
            other.cluster_id or self.cluster_id,
            {**self.topic_ids, **other.topic_ids},
            {**self.offsets, **other.offsets},
        )

    def only(self, topics: Iterable[str]) -> Position:
        """Give the part of the position that is about some topics."""
        wanted = set(topics)
        return Position(
            self.cluster_id,
            {topic: value for topic, value in self.topic_ids.items() if topic in wanted},
            {at: offset for at, offset in self.offsets.items() if at[0] in wanted},
        )

    def behind(self, other: Position) -> list[TopicPartition]:
        """Give the topic-partitions in which this position is before `other`."""
        return sorted(at for at, offset in other.offsets.items() if self.offsets.get(at, 0) < offset)

    def json(self) -> bytes:
        """Give the position as the offsets table stores it."""
        document = {"cluster-id": self.cluster_id, "topic-ids": dict(self.topic_ids), "offsets": nested(self.offsets)}
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def parse(text: str | bytes) -> Position:
        """Read what `json` wrote."""
        document = orjson.loads(text)
        return Position(document["cluster-id"], document["topic-ids"], flat(document["offsets"]))

    def summary(self, name: str, commit_id: str) -> dict[str, str]:
        """Give the snapshot summary properties of a commit at this position."""
        return {
            NAME: name,
            COMMIT_ID: commit_id,
            CLUSTER_ID: self.cluster_id,
            TOPIC_IDS: orjson.dumps(dict(self.topic_ids), option=orjson.OPT_SORT_KEYS).decode(),
            OFFSETS: orjson.dumps(nested(self.offsets), option=orjson.OPT_SORT_KEYS).decode(),
        }

    @staticmethod
    def of_summary(summary: Mapping[str, str], name: str) -> Position | None:
        """Read a snapshot's position, None when the snapshot is not this connector's."""
        if summary.get(NAME) != name:
            return None
        return Position(
            summary.get(CLUSTER_ID, ""), orjson.loads(summary[TOPIC_IDS]), flat(orjson.loads(summary[OFFSETS]))
        )


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Give offsets as Kafka tools write them: topic, then partition (as text), then offset."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Turn the nested form back."""
    return {(topic, int(p)): offset for topic, parts in offsets.items() for p, offset in parts.items()}
