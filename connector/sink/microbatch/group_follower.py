"""Offsets that are saved -> the consumer group's offsets, told again until the group has them.

Where no batch comes any more, lag tools would else show what was read long ago: the brokers were away when the last
batch was saved, or the process ended between the two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog

from connector.kafka.consumer_group import ConsumerGroup
from connector.runtime.topic_partitions import TopicPartition

_AGAIN_S = 10.0


class GroupFollower:
    """Has the group follow; what it lacks is said once, not with every batch. For one thread at a time."""

    def __init__(self, group: ConsumerGroup) -> None:
        """Know of nothing that the group lacks."""
        self._group = group
        self._behind: dict[TopicPartition, int] = {}
        self._problem: str | None = None
        self._tried: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether the group is to be told again."""
        return bool(self._behind) and (self._tried is None or time.monotonic() - self._tried >= _AGAIN_S)

    def expect(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have the group follow to where a process begins that was told so by what is saved."""
        self._behind.update(offsets)

    def follow(self, end: Mapping[TopicPartition, int]) -> None:
        """Tell the group where a batch ended, and what it lacks from before."""
        self._behind.update(end)
        self.catch_up()

    def catch_up(self) -> None:
        """Tell the group what it lacks."""
        problem = self._group.commit_offsets(dict(self._behind))
        self._tried = time.monotonic()
        if problem is None:
            self._behind.clear()
        elif problem != self._problem:
            structlog.get_logger().warning(problem)
        self._problem = problem

    def close(self) -> None:
        """Disconnect."""
        self._group.close()
