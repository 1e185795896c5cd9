"""Changes of key, and rows of the keys before -> the row that each of them took along. Pure rules on columns.

A change of key stands at one place of the source's log, where the old key is deleted and the new one made. So the row
before is, of all rows that the batch knows of the old key, the last one that is no later: one that ended by then, or
the one that the key has. Places decide where a row and the change have comparable ones, else dates; what tells neither
may be any. Of rows whose dates are equal, as those of one transaction are, the last one is meant that the change's
topic-partition has before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from serde.arrays import Ints, Mask
from serde.events.source_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN, LogPositions


@attrs.frozen(eq=False)
class KeyEvents:
    """Changes of key, or rows, one entry each: `codes` are equal for equal keys, of changes for the keys before.

    `partition` and `offset` tell where in Kafka the create of the row, or of the change, stands; `dedup` and `place`
    when it was, of a row that is gone when it ended, which `ended` marks.
    """

    codes: Ints
    partition: Ints
    offset: Ints
    dedup: Ints
    place: LogPositions
    ended: Mask

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def placed(self) -> Mask:
        """Which tell their place in the source's log."""
        known: Mask = self.place[:, FIRST_NUMBER] != NO_VALUE
        return known

    @property
    def source(self) -> Ints:
        """The log that places are of."""
        return self.place[:, SOURCE_COLUMN]


def find_preceding_rows(changes: KeyEvents, rows: KeyEvents) -> Ints:
    """Return the index of the row that each change of key took along; -1 where no row is known.

    Cost: sorts of both, once for each log that positions are of.
    """
    if not len(rows):
        return np.full(len(changes), -1, np.int64)
    ranked = _rank_rows(rows)
    best = _find_by_place(changes, rows, ranked)
    told = changes.placed
    best = np.maximum(best, _find_by_date(changes, ~told, rows, np.ones(len(rows), np.bool_), ranked))
    for source in np.unique(changes.source[told]):
        others = ~rows.placed | (rows.source != source)
        if others.any():
            own = told & (changes.source == source)
            best = np.maximum(best, _find_by_date(changes, own, rows, others, ranked))
    return _choose_among_equals(changes, rows, ranked, best)


@attrs.frozen(eq=False)
class _Ranks:
    """`rows` from the first to the last, `rank` of each in that order, `tie` of those that nothing but Kafka orders."""

    rows: Ints
    rank: Ints
    tie: Ints


def _rank_rows(rows: KeyEvents) -> _Ranks:
    place = rows.place
    numbers = [place[:, column] for column in range(FIRST_NUMBER, place.shape[1])]
    age = [*numbers, rows.dedup, rows.ended, rows.source]
    sequence = _sort([*age, rows.partition, rows.offset])
    rank = np.empty(len(rows), np.int64)
    rank[sequence] = np.arange(len(rows))
    return _Ranks(sequence, rank, _number([rows.codes, *age]))


def _find_by_place(changes: KeyEvents, rows: KeyEvents, ranked: _Ranks) -> Ints:
    """Return the rank of the last row of the key and log that stands no later; -1 without one."""
    result = np.full(len(changes), -1, np.int64)
    asked, known = np.flatnonzero(changes.placed), np.flatnonzero(rows.placed)
    if not len(asked) or not len(known):
        return result
    place = np.concatenate([rows.place[known], changes.place[asked]])
    group = _number([np.concatenate([rows.codes[known], changes.codes[asked]]), place[:, SOURCE_COLUMN]])
    where = _number([place[:, column] for column in range(FIRST_NUMBER, place.shape[1])])
    result[asked] = _find_last(group, where, ranked.rank[known])
    return result


def _find_by_date(changes: KeyEvents, which: Mask, rows: KeyEvents, among: Mask, ranked: _Ranks) -> Ints:
    """Return the rank of the last row of the key that has no later date; what has no date is never later."""
    result = np.full(len(changes), -1, np.int64)
    asked, known = np.flatnonzero(which), np.flatnonzero(among)
    if not len(asked) or not len(known):
        return result
    dates = changes.dedup[asked]
    latest = np.where(dates == NO_VALUE, np.iinfo(np.int64).max, dates)
    group = _number([np.concatenate([rows.codes[known], changes.codes[asked]])])
    result[asked] = _find_last(group, _number([np.concatenate([rows.dedup[known], latest])]), ranked.rank[known])
    return result


def _find_last(group: Ints, when: Ints, rank: Ints) -> Ints:
    """Return for each change the greatest rank among the rows of its group that are no later; -1 without one.

    Args:
        group: of the rows, then of the changes; from 0.
        when: the same.
        rank: of the rows.
    """
    count, width = len(rank), int(when.max()) + 1
    at = group * width + when
    sequence = np.argsort(at[:count], kind="stable")
    most = np.maximum.accumulate(group[:count][sequence] * (int(rank.max()) + 1) + rank[sequence])
    found = np.searchsorted(at[:count][sequence], at[count:], side="right") - 1
    best = most[np.maximum(found, 0)] - group[count:] * (int(rank.max()) + 1)
    there = (found >= 0) & (group[:count][sequence][np.maximum(found, 0)] == group[count:])
    return np.where(there, best, -1)


def _choose_among_equals(changes: KeyEvents, rows: KeyEvents, ranked: _Ranks, best: Ints) -> Ints:
    """Return the rows of some ranks; of several that are equal the last one before the change in its partition."""
    found = np.where(best >= 0, ranked.rows[np.maximum(best, 0)], -1)
    asked = np.flatnonzero(found >= 0)
    if not len(asked):
        return found
    tie = ranked.tie
    group = _number(
        [
            np.concatenate([tie, tie[found[asked]]]),
            np.concatenate([rows.partition, changes.partition[asked]]),
        ]
    )
    # A change's own place comes before that of a row there: no row may be made by it.
    offset = _number([np.concatenate([rows.offset * 2 + 1, changes.offset[asked] * 2])])
    before = _find_last(group, offset, ranked.rank)
    found[asked] = np.where(before >= 0, ranked.rows[np.maximum(before, 0)], found[asked])
    return found


def _sort(columns: Sequence[npt.NDArray[np.generic]]) -> Ints:
    return np.lexsort(tuple(reversed(columns)))


def _number(columns: Sequence[npt.NDArray[np.generic]]) -> Ints:
    """Return numbers from 0 that are in the order of the columns, equal where all of them are."""
    sequence = _sort(columns)
    fresh = np.zeros(len(sequence), np.bool_)
    fresh[1:] = np.logical_or.reduce([column[sequence][1:] != column[sequence][:-1] for column in columns])
    result = np.empty(len(sequence), np.int64)
    result[sequence] = np.cumsum(fresh)
    return result
