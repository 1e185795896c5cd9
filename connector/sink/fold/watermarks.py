"""Positions and timestamps of changes -> which may be older than their table's rows, and how far each source has come.

Pure rules. A restarted Debezium sends events again. Within a batch the fold drops a repeated change of a key; between
batches the watermark does: per topic-partition and source, the greatest log position and the greatest timestamp that a
table took in (docs/decisions/0024). A change below it is a late candidate: `destinations.late_events` compares it with
the table's row. Any other change is applied in Kafka's order.

If partitions were added to a topic, the watermarks of all its partitions count: a key may have moved, and what its old
partition still holds of it is older than what came in the new one. So they do for tables whose keys are columns of the
value: rows of several partitions may have had one key, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, Watermark, Watermarks
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.change_rows import ChangeOrder
from connector.sink.model.event_age import mark_below
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncate_scope import to_legacy_name
from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, strip_log_name

MAX_SOURCES = 200
"""How many sources of one topic-partition have a watermark of their own in a commit's summary; the others share one,
which can only make more changes late candidates, never fewer."""

GROWN_PARTITION = -1
"""The partition number under which a topic that got more partitions has its watermarks (`fold.grown_topics`)."""


def find_limits(
    known: Watermarks, at: TopicPartition, names: Sequence[str], *, any_partition: bool = False
) -> list[Watermark]:
    """Return for each source the limit that its changes in a topic-partition must exceed to be certainly not late.

    `any_partition` tells that other partitions of the topic may have later changes of a key: it got partitions since
    what is known was stored, or the table's keys are not those of records.
    """
    own, grown = known.get(at, {}), None if any_partition else known.get((at[0], GROWN_PARTITION))
    limits = [_watermark_of(own, name) for name in names]
    if grown is None and not any_partition:
        return limits
    grown = grown or {}
    overtaken = [
        _watermark_of(grown, name) if name in grown else merge_partitions(known, at[0], name) for name in names
    ]
    return [mark.join(other) for mark, other in zip(limits, overtaken, strict=True)]


def merge_partitions(known: Watermarks, topic: str, name: str) -> Watermark:
    """Return how far a source has come in any partition of a topic. Cost: a few look-ups for each."""
    names, own = _names_of(name), (marks for (t, p), marks in known.items() if t == topic and p != GROWN_PARTITION)
    return _join_marks(mark for marks in own for mark in _find_marks(marks, names))


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
    """Return how far each source has come with some changes; a source whose changes prove nothing is listed empty.

    `versions` are those given to documents; the last change of a key may get one that is greater by one
    (`fold.document_versions.raise_winner_versions`).
    """
    result: dict[str, Watermark] = {}
    for name, rows in _rows_by_source(origin):
        dates, places = order.date[rows], order.place[rows, FIRST_NUMBER:]
        if not len(dates):
            continue
        numbers = _next_version(versions, rows)
        result[name] = Watermark(int(dates.max()), _greatest_place(places), numbers)
    return result


def _rows_by_source(origin: pa.DictionaryArray) -> Iterator[tuple[str, Ints | slice]]:
    """Return the name of each source, and where its changes are. Cost: a sort, but of one source's."""
    names, codes = origin.dictionary.to_pylist(), np.asarray(origin.indices)
    if len(names) == 1:
        yield names[0], slice(None)
        return
    sequence = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[sequence], np.arange(len(names) + 1))
    yield from ((name, sequence[ends[code] : ends[code + 1]]) for code, name in enumerate(names))


def _next_version(versions: Ints | None, rows: Ints | slice) -> int:
    most = NO_VALUE if versions is None else int(versions[rows].max())
    return most if most == NO_VALUE else most + 1


def _greatest_place(places: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[int, ...]:
    if places[:, 0].max() == NO_VALUE:
        return ()
    for column in range(places.shape[1]):
        places = places[places[:, column] == places[:, column].max()]
    return tuple(int(number) for number in places[0])


SeenProgress = dict[tuple[int, TopicPartition], SourceProgress]
"""What was seen of each table and topic-partition."""


def add_progress(seen: SeenProgress, progress: Iterable[SourceProgress]) -> None:
    """Add what was seen later. Cost: that of what is added, whatever was seen before."""
    for one in progress:
        before = seen.get((one.table, one.at))
        if before is not None:
            marks, after_delete = _merge_marks(before.marks, one.marks), max(before.after_delete, one.after_delete)
            seen[one.table, one.at] = SourceProgress(one.table, one.at, marks, after_delete)
        else:
            seen[one.table, one.at] = one


def merge_progress(progress: Iterable[SourceProgress]) -> tuple[SourceProgress, ...]:
    """Merge what was seen of one table and topic-partition by several tasks; later items are later in the partition."""
    seen: SeenProgress = {}
    add_progress(seen, progress)
    return tuple(seen.values())


def advance_watermarks(known: Watermarks, progress: Iterable[SourceProgress]) -> Watermarks:
    """Return the watermarks of one table that rose with these changes."""
    result = {}
    for one in progress:
        before = known.get(one.at, {})
        marks = limit_sources(_merge_marks(before, one.marks))
        if marks != before:
            result[one.at] = marks
    return result


def limit_sources(marks: Mapping[str, Watermark]) -> Mapping[str, Watermark]:
    """Return at most `MAX_SOURCES` watermarks; the shared one has no log position: those of sources do not compare."""
    if len(marks) <= MAX_SOURCES and ALL_SOURCES not in marks:
        return marks
    dates, versions = (max(getattr(mark, name) for mark in marks.values()) for name in ("date", "version"))
    return {ALL_SOURCES: Watermark(dates, (), versions)}


def _watermark_of(marks: Mapping[str, Watermark], name: str) -> Watermark:
    """Return a source's own watermark, joined with the shared one."""
    return _join_marks(_find_marks(marks, _names_of(name)))


def _names_of(name: str) -> tuple[str, ...]:
    """Return the names that a watermark of a source may have, its own first: earlier versions stored shorter ones."""
    whole = strip_log_name(name)
    return name, whole, to_legacy_name(whole)


def _find_marks(marks: Mapping[str, Watermark], names: Iterable[str]) -> Iterator[Watermark]:
    """Return a source's own watermark, which is that of the first name that is there, and the shared one."""
    for own in names:
        if own in marks:
            yield marks[own]
            break
    if ALL_SOURCES in marks:
        yield marks[ALL_SOURCES]


def _join_marks(marks: Iterable[Watermark]) -> Watermark:
    """Return the greatest of each; of all at once, as there may be one for each of many partitions."""
    told = [(mark.date, mark.place, mark.version) for mark in marks]
    return Watermark(*map(max, zip(*told, strict=True))) if told else Watermark()


def _merge_marks(one: Mapping[str, Watermark], other: Mapping[str, Watermark]) -> dict[str, Watermark]:
    return {**one, **{name: one[name].join(mark) if name in one else mark for name, mark in other.items()}}
