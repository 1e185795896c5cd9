"""Key changes, and rows of the old keys -> the row that each key change took along. Pure rules on columns.

A key change has one position in the source's log, at which the old key is deleted and the new one created. The row
before it is the last row of the old key, among all rows in the batch, that is not later: one that had ended by then, or
the one that the key still has. Log positions decide if both the row and the change have comparable ones, else
timestamps; a row without either may be any. Among rows with equal timestamps, such as those of one transaction, it is
the last one before the change in the change's topic-partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN, LogPositions


@attrs.frozen(eq=False)
class KeyEvents:
    """Key changes, or rows: `codes` are equal for equal keys; those of a key change are of its old key.

    `partition` and `offset` locate in Kafka the create of the row, or of the change. `dedup` and `place` say when it
    was; for a row that is gone (`ended`), when it ended.
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
        """Which entries have a position in the source's log."""
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
    has_place = changes.placed
    best = np.maximum(best, _find_by_date(changes, ~has_place, rows, np.ones(len(rows), np.bool_), ranked))
    for source in np.unique(changes.source[has_place]):
        others = ~rows.placed | (rows.source != source)
        if others.any():
            own = has_place & (changes.source == source)
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
    with_place, known = np.flatnonzero(changes.placed), np.flatnonzero(rows.placed)
    if not len(with_place) or not len(known):
        return result
    place = np.concatenate([rows.place[known], changes.place[with_place]])
    group = _number([np.concatenate([rows.codes[known], changes.codes[with_place]]), place[:, SOURCE_COLUMN]])
    where = _number([place[:, column] for column in range(FIRST_NUMBER, place.shape[1])])
    result[with_place] = _find_last(group, where, ranked.rank[known])
    return result


def _find_by_date(changes: KeyEvents, which: Mask, rows: KeyEvents, among: Mask, ranked: _Ranks) -> Ints:
    """Return the rank of the last row of the key that has no later date; what has no date is never later."""
    result = np.full(len(changes), -1, np.int64)
    wanted, known = np.flatnonzero(which), np.flatnonzero(among)
    if not len(wanted) or not len(known):
        return result
    dates = changes.dedup[wanted]
    latest = np.where(dates == NO_VALUE, np.iinfo(np.int64).max, dates)
    group = _number([np.concatenate([rows.codes[known], changes.codes[wanted]])])
    result[wanted] = _find_last(group, _number([np.concatenate([rows.dedup[known], latest])]), ranked.rank[known])
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
    positions = np.searchsorted(at[:count][sequence], at[count:], side="right") - 1
    best = most[np.maximum(positions, 0)] - group[count:] * (int(rank.max()) + 1)
    has_row = (positions >= 0) & (group[:count][sequence][np.maximum(positions, 0)] == group[count:])
    return np.where(has_row, best, -1)


def _choose_among_equals(changes: KeyEvents, rows: KeyEvents, ranked: _Ranks, best: Ints) -> Ints:
    """Return the rows at some ranks; of several equal ones the last one before the change in its partition."""
    chosen_rows = np.where(best >= 0, ranked.rows[np.maximum(best, 0)], -1)
    wanted = np.flatnonzero(chosen_rows >= 0)
    if not len(wanted):
        return chosen_rows
    tie = ranked.tie
    group = _number(
        [
            np.concatenate([tie, tie[chosen_rows[wanted]]]),
            np.concatenate([rows.partition, changes.partition[wanted]]),
        ]
    )
    # A change's own place comes before that of a row there: no row may be made by it.
    offset = _number([np.concatenate([rows.offset * 2 + 1, changes.offset[wanted] * 2])])
    before = _find_last(group, offset, ranked.rank)
    chosen_rows[wanted] = np.where(before >= 0, ranked.rows[np.maximum(before, 0)], chosen_rows[wanted])
    return chosen_rows


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
