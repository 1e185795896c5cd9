"""Evidence of changes -> which may be older than what their table holds, and how far each source has come. Pure rules.

Debezium sends again what it had sent before a restart. Within a batch the fold sees to it that a repeated change of a
key loses; between batches the watermark does: the greatest place in the source's log, and the greatest date, that a
table took in, per topic-partition and source (docs/decisions/0024). A change below it is a suspect:
`destinations.late_events` compares it with the row that the table has. Any other is applied in Kafka's order.

A topic that has grown is read by all its partitions' watermarks: a key may have moved, and what its old partition still
holds of it is older than what came by the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, Watermark, Watermarks
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.change_rows import ChangeOrder
from connector.sink.model.event_age import mark_below
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncate_scope import to_legacy_name
from serde.arrays import Ints, Mask
from serde.events.source_positions import FIRST_NUMBER, NO_VALUE, strip_log_name

MAX_SOURCES = 200
"""Sources of one topic-partition that are kept apart in a commit's summary; beyond it they share one watermark, which
makes more suspects, and none less."""

GROWN_PARTITION = -1
"""Stands for the partition of what is known of a topic that has grown."""

PARTITIONS_BEFORE = "#"
"""There, how many partitions the topic had (as a date). Beside it stands, for each source that has written to a new
partition since, how far it had come then: whatever is older than that may have been overtaken by its key's new
partition."""


def find_limits(known: Watermarks, at: TopicPartition, names: Sequence[str]) -> list[Watermark]:
    """Return for each source what its changes in a topic-partition have to be above, so as to be no suspects."""
    own, grown = known.get(at, {}), known.get((at[0], GROWN_PARTITION))
    found = [_watermark_of(own, name) for name in names]
    if grown is None:
        return found
    overtaken = [
        _watermark_of(grown, name) if name in grown else merge_partitions(known, at[0], name) for name in names
    ]
    return [mark.join(other) for mark, other in zip(found, overtaken, strict=True)]


def merge_partitions(known: Watermarks, topic: str, name: str) -> Watermark:
    """Return how far a source has come in any partition of a topic."""
    result = Watermark()
    for (other, partition), marks in known.items():
        if other == topic and partition != GROWN_PARTITION:
            result = result.join(_watermark_of(marks, name))
    return result


def mark_late_candidates(order: ChangeOrder, origin: pa.DictionaryArray, marks: Sequence[Watermark]) -> Mask:
    """Mark the changes that may repeat older ones.

    Args:
        order: of changes of one topic-partition.
        origin: their sources, aligned.
        marks: the limits of the sources in its dictionary.
    """
    count = len(order)
    if not count or all(mark == Watermark() for mark in marks):
        return np.zeros(count, np.bool_)
    dates = np.array([mark.date for mark in marks], np.int64)
    places = np.array([mark.place or (NO_VALUE, NO_VALUE, NO_VALUE) for mark in marks], np.int64)
    one = len(marks) == 1
    codes = np.zeros(1, np.int64) if one else np.asarray(origin.indices)
    date, place = dates[codes], places[codes[0]] if one else places[codes]
    both = (order.place[:, FIRST_NUMBER] != NO_VALUE) & (place[..., 0] != NO_VALUE)
    known = order.date != NO_VALUE
    newer = known & (date != NO_VALUE) & (order.date > date)
    result: Mask = np.where(both, mark_below(order.place, place) & ~newer, known & (order.date < date))
    return result


def find_latest_by_source(
    order: ChangeOrder, origin: pa.DictionaryArray, versions: Ints | None = None
) -> dict[str, Watermark]:
    """Return how far each source has come with some changes; of one whose changes prove nothing only that it is there.

    `versions` are those that documents are given; the last change of a key may get one that is greater by one
    (`fold.document_versions.raise_winner_versions`).
    """
    result: dict[str, Watermark] = {}
    names = origin.dictionary.to_pylist()
    codes = np.asarray(origin.indices)
    for code, name in enumerate(names):
        rows = slice(None) if len(names) == 1 else np.flatnonzero(codes == code)
        dates, places = order.date[rows], order.place[rows, FIRST_NUMBER:]
        if not len(dates):
            continue
        numbers = _next_version(versions, rows)
        result[name] = Watermark(int(dates.max()), _greatest_place(places), numbers)
    return result


def _next_version(versions: Ints | None, rows: Ints | slice) -> int:
    most = NO_VALUE if versions is None else int(versions[rows].max())
    return most if most == NO_VALUE else most + 1


def _greatest_place(places: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[int, ...]:
    if places[:, 0].max() == NO_VALUE:
        return ()
    for column in range(places.shape[1]):
        places = places[places[:, column] == places[:, column].max()]
    return tuple(int(number) for number in places[0])


def merge_progress(seen: Iterable[SourceProgress]) -> tuple[SourceProgress, ...]:
    """Take what was seen of the same table and topic-partition together; later ones come later in the partition."""
    result: dict[tuple[int, TopicPartition], SourceProgress] = {}
    for one in seen:
        before = result.get((one.table, one.at), SourceProgress(one.table, one.at))
        marks = _merge_marks(before.marks, one.marks)
        result[one.table, one.at] = SourceProgress(one.table, one.at, marks, max(before.after_delete, one.after_delete))
    return tuple(result.values())


def advance_watermarks(known: Watermarks, seen: Iterable[SourceProgress]) -> Watermarks:
    """Return the watermarks of one table that rose with what was seen of it."""
    result = {}
    for one in seen:
        before = known.get(one.at, {})
        marks = limit_sources(_merge_marks(before, one.marks))
        if marks != before:
            result[one.at] = marks
    return result


def track_grown_topics(known: Watermarks, before: Mapping[str, int], now: Mapping[str, int]) -> Watermarks:
    """Return what changes in what is known of topics that have grown.

    Args:
        known: the watermarks after a batch.
        before: how many partitions each topic had when the table was written to before.
        now: how many it has.
    """
    result = {}
    for topic, count in now.items():
        old = known.get((topic, GROWN_PARTITION))
        fresh = {PARTITIONS_BEFORE: Watermark(before[topic])} if 0 < before.get(topic, 0) < count else old
        if fresh is None:
            continue
        first = fresh[PARTITIONS_BEFORE].date
        fresh_parts = [marks for (t, p), marks in known.items() if t == topic and p >= first]
        there = {name for marks in fresh_parts for name, mark in marks.items() if mark.date != NO_VALUE or mark.place}
        told = {**{name: merge_partitions(known, topic, name) for name in sorted(there) if name not in fresh}, **fresh}
        if told != old:
            result[topic, GROWN_PARTITION] = told
    return result


def limit_sources(marks: Mapping[str, Watermark]) -> Mapping[str, Watermark]:
    """Return at most `MAX_SOURCES` watermarks; places of several sources do not compare, so what all share has none."""
    if len(marks) <= MAX_SOURCES and ALL_SOURCES not in marks:
        return marks
    dates, versions = (max(getattr(mark, name) for mark in marks.values()) for name in ("date", "version"))
    return {ALL_SOURCES: Watermark(dates, (), versions)}


def _watermark_of(marks: Mapping[str, Watermark], name: str) -> Watermark:
    """Return a source's own, and what all share; earlier versions had shorter names."""
    whole = strip_log_name(name)
    names = [each for each in (name, whole, to_legacy_name(whole)) if each in marks]
    return (marks[names[0]] if names else Watermark()).join(marks.get(ALL_SOURCES, Watermark()))


def _merge_marks(one: Mapping[str, Watermark], other: Mapping[str, Watermark]) -> dict[str, Watermark]:
    return {name: one.get(name, Watermark()).join(other.get(name, Watermark())) for name in {**one, **other}}
