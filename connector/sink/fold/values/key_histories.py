"""Changes of several tasks -> all changes of a key in order, and where the lives of its rows begin. Pure rules."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from connector.sink.fold.order.key_runs import find_evidence, mark_run_starts
from connector.sink.fold.order.original_order import restore_order
from connector.sink.fold.order.winners import sort_changes
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeBatch, ChangeOrder, compute_key_codes
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_CREATE, OP_READ, OP_UPDATE
from serde.events.positions.log_positions import NO_VALUE, SOURCE_COLUMN

CREATES = (OP_CREATE, OP_KEY_CHANGE)
_GIVES_ROW = (*CREATES, OP_UPDATE, OP_READ)


@attrs.frozen(eq=False)
class KeyHistories:
    """All changes sorted by key and place (`sequence`); for each sorted one where its key begins (`keys`), and from
    where on nothing of its key is missing (`starts`).

    A batch may take in the beginning of a repetition only: behind what it has of it, and in front of where the batch
    itself began, there may be changes that are in the table alone.
    """

    sequence: Ints
    keys: Ints
    starts: Ints


def sort_by_origin(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> KeyHistories:
    """Return the histories of all keys in the order of their source.

    What repeats an older change is where it came first (`order.original_order`): the changes before it in Kafka may be
    of the next row of its key.
    """
    return sort_both_ways(parts, keys)[-1]


def sort_both_ways(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> list[KeyHistories]:
    """Return all changes sorted by key and place as Kafka has them, and where anything is repeated, by origin too."""
    codes = compute_key_codes(parts, keys)
    order = ChangeOrder.concat([part.order for part in parts])
    sequence = sort_changes(codes, order)
    starts = _find_key_starts(codes[sequence])
    histories = [KeyHistories(sequence, starts, starts)]
    if len(sequence):
        sorted_order = order.take(sequence)
        group = np.cumsum(mark_run_starts(codes[sequence], sorted_order.partition)) - 1
        original = restore_order(_number_runs(codes[sequence], sorted_order), sorted_order)
        # A place alone tells no age here: PostgreSQL's transactions side by side write later events at smaller ones.
        suspect = np.concatenate([part.suspect for part in parts])[sequence] & (sorted_order.date != NO_VALUE)
        comes_again = not np.array_equal(original, np.arange(len(original)))
        if comes_again or suspect.any():
            gaps = _find_gaps(original, starts, group, suspect[find_evidence(sorted_order, group)])
            if comes_again or not np.array_equal(gaps, starts):
                histories.append(KeyHistories(sequence[original], starts, gaps))
    return histories


def find_doubtful_ends(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> Ints:
    """Find the last change of a key in a partition, where another partition would go on if it were certain that the
    table has nothing later (`_find_gaps`), and values may be taken from it.

    Returns:
        Indices that count through the parts in turn, ascending.

    Cost: a look at the lengths of texts; where a value was not sent, two sorts.
    """
    if not any(part.unsent_values for part in parts):
        return np.zeros(0, np.int64)
    known, certain = (sort_by_origin(some, keys) for some in (parts, [_trust(part) for part in parts]))
    places = np.arange(len(known.sequence))
    behind = known.sequence[np.flatnonzero((known.starts == places) & (certain.starts < places)) - 1]
    gives = np.concatenate([part.image & ~part.deleted & ~part.truncated for part in parts])
    return np.sort(behind[gives[behind]])


def _trust(part: ChangeBatch) -> ChangeBatch:
    return attrs.evolve(part, suspect=np.zeros(len(part), np.bool_))


def _number_runs(sorted_codes: Ints, order: ChangeOrder) -> Ints:
    """Return to which run each change belongs, of those that are put in order: a key's, through all partitions.

    What a restarted connector sends again may be in another partition by now, where a topic has grown. Places in
    several logs do not compare: where a key's changes are of more than one, each partition has a run of its own.
    """
    begins = np.flatnonzero(mark_run_starts(sorted_codes))
    # A tombstone does not tell which log it is of.
    source = np.where(order.bare, NO_VALUE, order.place[:, SOURCE_COLUMN])
    least = np.minimum.reduceat(np.where(source == NO_VALUE, np.iinfo(np.int64).max, source), begins)
    several = np.repeat(np.maximum.reduceat(source, begins) > least, np.diff(np.append(begins, len(source))))
    return np.cumsum(mark_run_starts(sorted_codes, np.where(several, order.partition, 0))) - 1


def _find_gaps(original: Ints, keys: Ints, group: Ints, read_before: Mask) -> Ints:
    """Return for changes in the order of their source where each goes back to without a gap.

    What Kafka has in the order of the source is without gap, from its first change to its last; each repetition begins
    no later than where the one before it had come to. A partition has passes of its own, and takes up where the one
    before it ended, unless that one has a repetition only: what lies between was read by earlier batches.

    Args:
        original: the places of changes in Kafka's order, in that of the source.
        keys: where the key of each place begins, in either order.
        group: the key and partition of each place, in Kafka's order.
        read_before: what may be older than what the table holds, in Kafka's order.
    """
    count, places = len(original), np.arange(len(original))
    at = np.empty(count, np.int64)
    at[original] = places
    lanes = mark_run_starts(group)
    begins = lanes | np.append(True, at[1:] < at[:-1])
    first, last = at[begins], at[np.append(np.flatnonzero(begins)[1:] - 1, count - 1)]
    opened = np.bincount(first, minlength=count).cumsum()
    closed = np.append(0, np.bincount(last, minlength=count).cumsum()[:-1])
    # Where all that was begun before has ended, something may be missing.
    own = mark_run_starts(keys)
    takes_up = (lanes & ~own)[original] & ~np.append(False, read_before[original][:-1])
    gap = (np.append(0, opened[:-1]) == closed) & (own | ~takes_up)
    starts: Ints = np.maximum.accumulate(np.where(gap, places, 0))
    return starts


def _find_key_starts(sorted_codes: Ints) -> Ints:
    starts: Ints = np.where(mark_run_starts(sorted_codes), np.arange(len(sorted_codes)), 0)
    return np.maximum.accumulate(starts)


def find_creates(parts: Sequence[ChangeBatch], places: ChangeOrder, keys: Sequence[str]) -> Ints:
    """For every change the create that made its row, -1 where none is known."""
    histories = sort_by_origin(parts, keys)
    sequence = histories.sequence
    last = _find_last(np.isin(places.op[sequence], CREATES))
    result = np.full(len(sequence), -1, np.int64)
    has_create = last >= find_row_starts(parts, histories)
    result[sequence[has_create]] = sequence[last[has_create]]
    return result


def find_row_starts(parts: Sequence[ChangeBatch], histories: KeyHistories) -> Ints:
    """Return for each sorted change where its row's life begins: at the last create before it, behind the last delete,
    which alone tells it of events without operation, or where what is known of its key does.
    """
    sequence, starts = histories.sequence, histories.starts
    op = np.concatenate([part.order.op for part in parts])[sequence]
    deletes = np.concatenate([mark_deletes(part) for part in parts])[sequence]
    behind = np.append(False, deletes[:-1]) & ~deletes
    begun: Ints = np.maximum(_find_last(np.isin(op, CREATES) | behind), starts)
    return begun


def mark_deletes(part: ChangeBatch) -> Mask:
    """Mark the changes that take a row away, and tell none: not the rows that a truncate ended."""
    deletes: Mask = part.deleted & ~np.isin(part.order.op, _GIVES_ROW)
    return deletes


def _find_last(marks: Mask) -> Ints:
    """Return for each place the last one up to it that is marked, -1 without any."""
    last: Ints = np.maximum.accumulate(np.where(marks, np.arange(len(marks)), -1))
    return last
