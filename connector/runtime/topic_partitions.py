"""Topic-partitions, and values by topic-partition <-> nested by topic, as Kafka's tools write offsets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

TopicPartition = tuple[str, int]

UNKNOWN_TOPIC_IDS = frozenset({"", "AAAAAAAAAAAAAAAAAAAAAA"})
"""Stand for the id of a topic whose brokers tell none: those before Kafka 2.8, and services with as old a protocol."""


def is_other_topic(before: str, now: str) -> bool:
    """Tell by the ids of two topics of one name whether they are two; what has no id that is known may be either."""
    return before != now and not {before, now} & UNKNOWN_TOPIC_IDS


def find_remade_topics(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the topics that were deleted since, and made again, by the ids that topics had and have."""
    return sorted(name for name, topic_id in now.items() if is_other_topic(before.get(name, ""), topic_id))


def nest_by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """Return values, such as offsets, by topic, then by partition (as text), sorted."""
    result: dict[str, dict[str, T]] = {}
    for (topic, partition), value in sorted(values.items()):
        result.setdefault(topic, {})[str(partition)] = value
    return result


def flatten_by_partition(values: Mapping[str, Mapping[str, T]]) -> dict[TopicPartition, T]:
    """Turn the nested form back."""
    return {(topic, int(p)): value for topic, parts in values.items() for p, value in parts.items()}
