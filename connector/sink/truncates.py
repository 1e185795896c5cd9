"""Truncate events -> where a table was emptied, and which changes of a batch are still true after it. Pure rules.

A truncate has no key, so Kafka keeps no order between it and the changes in other partitions: there the source's own
clock and position decide. What cannot be told stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from connector.iceberg.position import TopicPartition
from connector.sink.fold import NONE
from serde.bits import Ints, Mask

OP = ord("t")
CLOCK = "__source_ts_ns"
"""The dedup column whose values and a truncate's time can be compared."""


@attrs.frozen
class Truncate:
    """One truncate event: where it is in Kafka, and in its source (`NONE`, the least number, where that is unknown).

    `source` is the name of that; `table` the index of its table in the batch's plan, -1 where there is none yet.
    """

    topic: str
    partition: int
    offset: int
    ts_ns: int
    lsn: int
    total_order: int
    source: str = ""
    table: int = -1

    @property
    def place(self) -> tuple[int, int, int]:
        """What decides between partitions."""
        return self.ts_ns, self.lsn, self.total_order


@attrs.frozen
class Cut:
    """The truncates of one table in a batch: the last offset of one per topic-partition, and the latest's place."""

    offsets: Mapping[TopicPartition, int]
    ts_ns: int
    lsn: int
    total_order: int

    @staticmethod
    def of(truncates: Iterable[Truncate]) -> Cut:
        """Take all truncates of a table together."""
        offsets: dict[TopicPartition, int] = {}
        places = []
        for each in truncates:
            at = each.topic, each.partition
            offsets[at] = max(each.offset, offsets.get(at, -1))
            places.append(each.place)
        return Cut(offsets, *max(places))

    def after(self, at: TopicPartition, offset: Ints, ts_ns: Ints, lsn: Ints, total_order: Ints) -> Mask:
        """Mark the changes of a topic-partition that came after the truncate; those that cannot be told did."""
        own: Mask = offset > self.offsets.get(at, -1)
        if self.ts_ns == NONE or list(self.offsets) == [at]:
            # Within a partition Kafka's order is the source's.
            return own
        same_time = (ts_ns == self.ts_ns) & ~_before(lsn, self.lsn)
        same_lsn = (lsn == self.lsn) & (self.lsn != NONE)
        later: Mask = (ts_ns == NONE) | (ts_ns > self.ts_ns)
        later |= same_time & ~(same_lsn & _before(total_order, self.total_order, itself=True))
        return own & later


def _before(values: Ints, limit: int, *, itself: bool = False) -> Mask:
    """Mark what is known to lie before the limit."""
    known = (values != NONE) & (limit != NONE)
    before: Mask = known & ((values <= limit) if itself else (values < limit))
    return before
