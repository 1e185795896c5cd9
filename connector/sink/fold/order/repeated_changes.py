"""Changes of a key in Kafka's order -> those that are proven to repeat an older one. Pure rules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from connector.sink.fold.order.key_runs import find_evidence, mark_run_starts
from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN, LogPositions, paired_numbers


def mark_repeated(group: Ints, order: ChangeOrder) -> Mask:
    """Mark the changes that are proven to repeat an older one.

    A change is proven to repeat if its log position is smaller than that of a change before it, unless its timestamp,
    or the number of its transaction, contradicts that; if not both have a position, if its timestamp is earlier.

    Args:
        group: key and partition of each change, in runs.
        order: what decides, in Kafka's order within each run.
    """
    count = len(group)
    evidence = find_evidence(order, group)
    place, date = order.place[evidence], order.date[evidence]
    source = place[:, SOURCE_COLUMN]
    sequence = np.lexsort((np.arange(count), source, group))
    run = np.cumsum(mark_run_starts(group[sequence], source[sequence])) - 1
    place, date = place[sequence], date[sequence]
    where, most_where = rank_rows(place[:, FIRST_NUMBER:], run)
    when, most_when = rank_rows(date[:, None], run)
    both = (where > 0) & (most_where > 0)
    older = (when > 0) & (when < most_when)
    newer = (when > 0) & (most_when > 0) & (when > most_when)
    newer |= _mark_new_transactions(place, run)
    result: Mask = np.empty(count, np.bool_)
    result[sequence] = np.where(both, (where < most_where) & ~newer, older)
    return result


def _mark_new_transactions(place: LogPositions, run: Ints) -> Mask:
    """Mark the changes whose transaction has no smaller number than one before it in their run, of the same numbering.

    Nothing is proven of those that have the greatest: their transaction may have begun in another log.
    """
    owner, number, told = paired_numbers(place)
    result = np.zeros(len(run), np.bool_)
    rows = np.flatnonzero(told)
    if len(rows):
        rows = rows[np.lexsort((rows, owner[rows], run[rows]))]
        numbering = np.cumsum(mark_run_starts(run[rows], owner[rows])) - 1
        rank, before = rank_rows(number[rows, None], numbering)
        result[rows] = rank >= before
    return result


def rank_rows(columns: npt.NDArray[np.int64], run: Ints) -> tuple[Ints, Ints]:
    """Return the rank of each row of numbers (0 if unknown), and the greatest rank before it in its run."""
    keys = tuple(columns[:, place] for place in reversed(range(columns.shape[1])))
    sequence = np.lexsort(keys)
    fresh = mark_run_starts(*(key[sequence] for key in keys))
    rank = np.empty(len(run), np.int64)
    rank[sequence] = np.cumsum(fresh)
    rank[columns[:, 0] == NO_VALUE] = 0
    width = len(run) + 1
    most = np.maximum.accumulate(run * width + rank)
    before = np.zeros(len(run), np.int64)
    before[1:] = np.where(run[1:] == run[:-1], most[:-1] - run[1:] * width, 0)
    return rank, before
