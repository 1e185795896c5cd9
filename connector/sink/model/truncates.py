"""Truncate events -> where a table was emptied, and which changes of a batch are still true after it. Pure rules.

A truncate has no key: Debezium sends it to any partition, and Kafka keeps no order between it and the changes in
others. There the source's own position decides, else precise dates. A read holds nothing that came after it was read,
so one that is older by either is gone. What cannot be told stays, and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from connector.iceberg.commit.kafka_offsets import LastTruncate, SourcePosition, Watermark
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.change_rows import ChangeOrder
from connector.sink.model.event_age import mark_above, mark_below, select_proven_dates, select_proven_places
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_READ
from serde.events.positions.log_positions import (
    FIRST_NUMBER,
    NO_VALUE,
    SOURCE_COLUMN,
    LogPositions,
    paired_numbers,
    source_number,
)

SOURCE_TS_NS = "__source_ts_ns"
"""The source's time: what a truncate's time is compared with, and from when a version of a history is true."""

_SECOND_NS = 1_000_000_000


@attrs.frozen
class Truncate:
    """One truncate event: where it is in Kafka, when it was (epoch nanoseconds, `NO_VALUE` where that is unknown), the
    number of its source with its place there (`positions.log_positions`; empty where it tells none), and its place
    in its transaction.

    `source` is the name of its source; `table` the index of its table in the batch's plan, -1 where there is none yet.
    `dedup` is its value of the dedup column, `NO_VALUE` where it tells none.
    """

    topic: str
    partition: int
    offset: int
    ts_ns: int
    place: SourcePosition = ()
    total_order: int = NO_VALUE
    source: str = ""
    table: int = -1
    dedup: int = NO_VALUE


@attrs.frozen
class ChangeTimes:
    """When changes were, aligned: their times (epoch nanoseconds), operations, and places in their sources' logs."""

    ts_ns: Ints
    op: npt.NDArray[np.uint8]
    deleted: Mask
    place: LogPositions


@attrs.frozen
class TableTruncate:
    """The truncates of one table in a batch: the last offset of one per topic-partition, and the latest's moment.

    `alone` tells that all records of the table are in that topic-partition: Kafka's order tells of all its rows.
    `source` is the name of its source, `latest` has the latest truncate of each topic-partition.
    """

    offsets: Mapping[TopicPartition, int]
    ts_ns: int
    place: SourcePosition = ()
    total_order: int = NO_VALUE
    alone: bool = False
    source: str = ""
    latest: Mapping[TopicPartition, Truncate] = attrs.field(factory=dict)
    dedup: int = NO_VALUE

    @staticmethod
    def of(truncates: Iterable[Truncate], *, alone: bool = False) -> TableTruncate:
        """Take all truncates of one source together."""
        by_partition: dict[TopicPartition, list[Truncate]] = {}
        for each in truncates:
            by_partition.setdefault((each.topic, each.partition), []).append(each)
        offsets = {at: max(each.offset for each in found) for at, found in by_partition.items()}
        latest = {at: _find_latest(found) for at, found in by_partition.items()}
        last = _find_latest([each for found in by_partition.values() for each in found])
        return TableTruncate(offsets, last.ts_ns, last.place, last.total_order, alone, last.source, latest, last.dedup)

    @property
    def last(self) -> LastTruncate:
        """What later batches have to know of it."""
        return LastTruncate(0 if self.ts_ns == NO_VALUE else self.ts_ns, self.place)

    def comes_again(self, last: LastTruncate) -> bool:
        """Tell whether it is known to be the source's last truncate: by its place, else by a date of less than seconds.

        One that is older than that empties nothing (`is_repeated`).
        """
        if self.place and last.place:
            return self.place == last.place
        return self.ts_ns == last.ts_ns and self.ts_ns % _SECOND_NS != 0

    def deletes_until(
        self, last: SourcePosition, marks: Iterable[tuple[str, Watermark]] = (), own: int | None = None
    ) -> int | None:
        """Return up to which date (included) rows of earlier batches go; None for all of them.

        `own` is the truncate's date as the rows tell theirs, or what they tell in its place; else it is its time in
        epoch nanoseconds.

        Rows with the truncate's own date came before it only where Kafka's order says so, or `marks`: how far the table
        has come in each log of this source, by its name, where that is before the truncate throughout. Kafka's order
        says so of all rows in the same topic-partition, whatever their dates are: those of reads are of the connector's
        clock, not the source's. `last` is the place of the source's last truncate: one that comes again takes no row
        that came after it.
        """
        date = self.ts_ns if own is None else own
        if date == NO_VALUE:
            return None
        if not self.alone:
            return date if self._is_behind_all(marks) else date - 1
        repeated, is_exact = bool(self.place) and self.place == last, bool(self.place) or self.ts_ns % _SECOND_NS == 0
        return None if is_exact and not repeated else date

    def _is_behind_all(self, marks: Iterable[tuple[str, Watermark]]) -> bool:
        """Tell whether all that a table has of this source is known to stand before the truncate in its log."""
        known = list(marks)
        # What proves nothing is of reads: they go by their dates.
        proven = [(name, mark) for name, mark in known if mark.place or mark.date != NO_VALUE]
        return bool(self.place and known) and all(
            source_number(name) == self.place[0] and () < mark.place < self.place[FIRST_NUMBER:]
            for name, mark in proven
        )

    def after(self, at: TopicPartition, offset: Ints, moments: ChangeTimes) -> tuple[Mask, Mask]:
        """Mark the changes of a topic-partition that came after the truncate, and those of them that cannot be told."""
        own: Mask = offset > self.offsets.get(at, -1)
        # Within a partition Kafka's order is the source's, but for what is proven to come again: a truncate, too.
        before, behind = _mark_proven(moments, self.ts_ns, self.place)
        if list(self.offsets) == [at]:
            return own & ~before | behind, np.zeros(len(own), np.bool_)
        earlier, certain = self._mark_earlier(moments)
        return own & ~earlier | behind, own & ~certain

    def mark_repeated(self, at: TopicPartition, offset: Ints, moments: ChangeTimes) -> Mask:
        """Mark the changes that come again in a topic-partition: a truncate that is later is in front of them."""
        latest = self.latest.get(at)
        if latest is None:
            return np.zeros(len(offset), np.bool_)
        before, _ = _mark_proven(moments, latest.ts_ns, latest.place)
        return before & (offset > latest.offset)

    def _mark_earlier(self, moments: ChangeTimes) -> tuple[Mask, Mask]:
        """Mark the changes that are known to have come before, and those of which it is known."""
        date, place = _select_proven(moments)
        with_place = _mark_comparable(place, self.place)
        with_date = ~with_place & (date != NO_VALUE) & (self.ts_ns != NO_VALUE) & (self.ts_ns % _SECOND_NS != 0)
        earlier = with_place & _mark_not_above(place, self.place) | with_date & (date < self.ts_ns)
        read = (place[:, FIRST_NUMBER] == NO_VALUE) & (date == NO_VALUE) & _is_read(moments)
        read &= (moments.ts_ns != NO_VALUE) & (moments.ts_ns < self.ts_ns) | (
            _mark_comparable(moments.place, self.place) & _mark_not_above(moments.place, self.place)
        )
        return earlier | read, with_place | with_date | read


def mark_before_truncate(order: ChangeOrder, ts_ns: int, place: SourcePosition) -> Mask:
    """Mark the changes that are known to have come before a truncate of an earlier batch; reads by when they were read.

    Args:
        order: of changes, with dates in nanoseconds.
        ts_ns: the truncate's time, 0 or `NO_VALUE` where it is not known.
        place: its source and place, empty where it told none.
    """
    with_place = _mark_comparable(order.place, place)
    date = np.where(order.op == OP_READ, order.dedup, order.date)
    older: Mask = ~with_place & (date != NO_VALUE) & (date < ts_ns)
    return older | (with_place & _mark_not_above(order.place, place) & ~_mark_newer(order.date, ts_ns))


def is_repeated(truncate: Truncate, last: LastTruncate) -> bool:
    """Tell whether a truncate repeats one that is older than its source's last; that one itself empties it again."""
    ts_ns, place = last.ts_ns, last.place
    if truncate.place and place and truncate.place[0] == place[0]:
        newer = 0 < ts_ns < truncate.ts_ns and truncate.ts_ns % _SECOND_NS != 0
        return bool(_mark_below(np.array([truncate.place], np.int64), place)[0]) and not newer
    return 0 < truncate.ts_ns < ts_ns and truncate.ts_ns % _SECOND_NS != 0


def _find_latest(truncates: Sequence[Truncate]) -> Truncate:
    """Return the latest of truncates; Kafka's order tells more than dates of whole seconds where they share it."""
    comparable = len({each.place[:1] for each in truncates}) == 1
    shared = len({(each.topic, each.partition) for each in truncates}) == 1
    return max(truncates, key=lambda e: (_rank(e.place) if comparable else (), e.ts_ns, e.offset if shared else 0))


def _mark_proven(moments: ChangeTimes, ts_ns: int, place: SourcePosition) -> tuple[Mask, Mask]:
    """Mark the changes that are proven to be older than a truncate, and those proven to be newer: by place, where the
    date does not contradict it.
    """
    date, known = _select_proven(moments)
    with_place = _mark_comparable(known, place)
    dated = (date != NO_VALUE) & (ts_ns != NO_VALUE) & (ts_ns % _SECOND_NS != 0)
    earlier, later = dated & (date < ts_ns), dated & (date > ts_ns)
    below, above = _mark_below(known, place), _mark_above(known, place)
    return with_place & below & ~later, with_place & above & ~earlier


def _select_proven(moments: ChangeTimes) -> tuple[Ints, LogPositions]:
    what = (moments.ts_ns, moments.op, moments.deleted)
    return select_proven_dates(*what, _SECOND_NS), select_proven_places(moments.place, *what, declared=False)


def _mark_newer(date: Ints, ts_ns: int) -> Mask:
    """Mark changes whose dates tell that they came after a truncate: a source that moved has small places again."""
    mask: Mask = (date != NO_VALUE) & (ts_ns > 0) & (date > ts_ns)
    return mask


def _mark_comparable(place: LogPositions, other: SourcePosition) -> Mask:
    if not other:
        return np.zeros(len(place), np.bool_)
    mask: Mask = (place[:, FIRST_NUMBER] != NO_VALUE) & (place[:, SOURCE_COLUMN] == other[0])
    return mask


def _mark_not_above(place: LogPositions, other: SourcePosition) -> Mask:
    if not other:
        return np.zeros(len(place), np.bool_)
    same: Mask = (place[:, FIRST_NUMBER:] == np.array(other[FIRST_NUMBER:], np.int64)).all(axis=1)
    return same | _mark_below(place, other)


def _mark_below(place: LogPositions, other: SourcePosition) -> Mask:
    if not other:
        return np.zeros(len(place), np.bool_)
    return mark_below(place, np.array(other[FIRST_NUMBER:], np.int64))


def _mark_above(place: LogPositions, other: SourcePosition) -> Mask:
    if not other:
        return np.ones(len(place), np.bool_)
    return mark_above(place, np.array(other[FIRST_NUMBER:], np.int64))


def _rank(place: SourcePosition) -> tuple[int, ...]:
    """What rises from one truncate to the next: MySQL's number of the transaction where it is told, as in every log."""
    if not place:
        return ()
    owner, number, told = (int(one[0]) for one in paired_numbers(np.array([place], np.int64)))
    return (number, *place) if told and owner else (0, *place)


def _is_read(moments: ChangeTimes) -> Mask:
    mask: Mask = ((moments.op == OP_READ) | (moments.op == 0)) & ~moments.deleted
    return mask
