"""Dates of changes -> which may be older than what their table holds, and how far each source has come. Pure rules.

Debezium sends again what it had sent before a restart. Within a batch the fold sees to it that an older change of a key
loses; between batches the watermark does: the greatest date (dedup value) that a table took in, per topic-partition and
source (design, section 5). A change with an older date is a suspect: `connector.sink.late` compares it with the row
that the table has. One with the watermark's own date, or a newer one, is applied in Kafka's order, as all changes of
one transaction have the same date; so is one without any date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.position import TopicPartition, Watermarks
from connector.sink.fold import NONE
from serde.bits import Ints, Mask

MAX_SOURCES = 200
"""Sources of one topic-partition that are kept apart in a commit's summary; beyond it they share one watermark, which
makes more suspects, and none less."""

ALL = "*"
"""The source of a watermark that all share."""


@attrs.frozen
class Seen:
    """What a task took in of one topic-partition for one table.

    `dates` has the greatest date of each source; `after_delete` the offset behind a delete event that no record of the
    task followed, -1 without.
    """

    table: int
    at: TopicPartition
    dates: Mapping[str, int] = attrs.field(factory=dict)
    after_delete: int = -1


def suspects(dates: Ints, origin: pa.DictionaryArray, known: Mapping[str, int]) -> Mask:
    """Mark the changes that are dated before the watermark of their source.

    Args:
        dates: of changes of one topic-partition, `NONE` where unknown.
        origin: their sources, aligned.
        known: the topic-partition's watermarks.
    """
    if not known or not len(dates):
        return np.zeros(len(dates), np.bool_)
    floor = known.get(ALL, NONE)
    names = origin.dictionary.to_pylist()
    limits = np.array([max(floor, known.get(n, known.get(without_schema(n), NONE))) for n in names], np.int64)
    limit = limits[np.asarray(origin.indices)] if len(limits) > 1 else limits[0]
    late: Mask = (dates < limit) & (dates != NONE)
    return late


def without_schema(name: str) -> str:
    """Give the name that earlier versions gave a source that has a schema."""
    parts = name.split(".")
    return ".".join((*parts[:2], parts[3])) if len(parts) == 4 else name  # noqa: PLR2004 - server, db, schema, table


def latest(dates: Ints, origin: pa.DictionaryArray) -> dict[str, int]:
    """Give the greatest date of each source; changes without a date say nothing."""
    names = origin.dictionary.to_pylist()
    greatest = np.full(len(names), NONE, np.int64)
    if len(names) == 1 and len(dates):
        greatest[0] = dates.max()
    else:
        np.maximum.at(greatest, np.asarray(origin.indices), dates)
    return {name: int(date) for name, date in zip(names, greatest, strict=True) if date != NONE}


def together(seen: Iterable[Seen]) -> tuple[Seen, ...]:
    """Take what was seen of the same table and topic-partition together; later ones come later in the partition."""
    result: dict[tuple[int, TopicPartition], Seen] = {}
    for one in seen:
        before = result.get((one.table, one.at), Seen(one.table, one.at))
        dates = _greatest(before.dates, one.dates)
        result[one.table, one.at] = Seen(one.table, one.at, dates, max(before.after_delete, one.after_delete))
    return tuple(result.values())


def risen(known: Watermarks, seen: Iterable[Seen]) -> Watermarks:
    """Give the watermarks of one table after what was seen of it; empty when nothing rose."""
    result = {}
    for one in seen:
        before = known.get(one.at, {})
        dates = bounded(_greatest(before, one.dates))
        if dates != before:
            result[one.at] = dates
    return result


def bounded(dates: Mapping[str, int]) -> Mapping[str, int]:
    """Give at most `MAX_SOURCES` watermarks."""
    return dates if len(dates) <= MAX_SOURCES and ALL not in dates else {ALL: max(dates.values())}


def _greatest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, NONE), other.get(name, NONE)) for name in {**one, **other}}
