"""Changes of a key in Kafka's order -> the order in which they came first: what is repeated goes where it was. Pure.

A connector that restarts sends again what came after its stored offset. The changes before a repeated one are then not
those in front of it in Kafka: behind `create 5, delete 9, create 12` comes `delete 9` once more, and it ends the first
row, not the second.
"""

from __future__ import annotations

import attrs
import numpy as np

from connector.sink.fold.order.arrival_order import is_ascending
from connector.sink.fold.order.key_runs import find_evidence, mark_run_starts
from connector.sink.fold.order.repeated_changes import mark_repeated, rank_rows
from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_READ
from serde.events.positions.log_positions import FIRST_NUMBER, SOURCE_COLUMN


def restore_order(group: Ints, order: ChangeOrder) -> Ints:
    """Return the places of changes in the order in which they came first.

    Of a group whose changes are of several logs nothing is moved. A tombstone goes with the change before it, and one
    that has none in front of the next one: its delete was read before, or is gone. A read, and what tells no place
    among changes that do, stands behind all that came before it.

    Args:
        group: key and partition of each change, in runs that ascend.
        order: what decides, in Kafka's order within each run.

    Cost: a look at all places; where some are repeated, sorts.
    """
    places = np.arange(len(group))
    if is_ascending(attrs.evolve(order, partition=group)):
        return places
    repeated = mark_repeated(group, order)
    if not repeated.any():
        return places
    return np.lexsort((places, *_rank_by_origin(group, order, repeated), group))


def _rank_by_origin(group: Ints, order: ChangeOrder, repeated: Mask) -> tuple[Ints, Ints]:
    """Return the rank of each change in its log, and how often its log had begun anew before."""
    first = mark_run_starts(group)
    evidence = _find_neighbours(group, order)
    place, source = order.place[evidence], order.place[evidence][:, SOURCE_COLUMN]
    where, _ = rank_rows(place[:, FIRST_NUMBER:], group)
    when, _ = rank_rows(order.date[evidence][:, None], group)
    placed = np.zeros(int(group[-1]) + 1, np.bool_)
    placed[group[where > 0]] = True
    rank = np.where(placed[group], where, when)
    rank[order.op[evidence] == OP_READ] = 0
    most = _accumulate_most(group, rank)
    before = np.where(first, 0, np.append(0, most[:-1]))
    begun = np.cumsum((rank > 0) & (rank < before) & ~repeated)
    rank = np.where(rank > 0, rank, most)
    mixed = np.zeros(len(placed), np.bool_)
    other = (group[1:] == group[:-1]) & (source[1:] != source[:-1])
    mixed[group[1:][other]] = True
    return np.where(mixed[group], 0, rank), np.where(mixed[group], 0, begun)


def _find_neighbours(group: Ints, order: ChangeOrder) -> Ints:
    """Return for each change the one whose place it has: a tombstone tells none, not even of which log it is."""
    evidence, places, bare = find_evidence(order, group), np.arange(len(group)), order.bare
    first = np.flatnonzero(bare[evidence])
    if not len(first):
        return evidence
    following = np.minimum.accumulate(np.where(bare, len(group) - 1, places)[::-1])[::-1]
    inside = group[following[first]] == group[first]
    evidence[first[inside]] = following[first[inside]]
    return evidence


def _accumulate_most(group: Ints, rank: Ints) -> Ints:
    """Return the greatest rank up to each change of a group."""
    width = len(group) + 1
    most: Ints = np.maximum.accumulate(group * width + rank) - group * width
    return most
