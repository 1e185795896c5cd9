"""Changes of keys -> the winner of each key in each topic-partition, and the changes that prove others repeated. Pure.

Within one topic-partition Kafka's order decides: the last change of a key wins, unless it is proven to repeat an older
one.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from connector.sink.fold.order.key_runs import mark_run_starts
from connector.sink.fold.order.repeated_changes import mark_repeated
from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN, paired_numbers


@attrs.frozen(eq=False)
class KeyGroups:
    """Changes by key and topic-partition: `rows` in an order that keeps Kafka's in each group, and `group` of each.

    `plain` is set if `rows` is the order of arrival.
    """

    rows: Ints
    group: Ints
    count: int
    plain: bool = False


@attrs.frozen(eq=False)
class PartitionWinners:
    """The winner of each key in each partition, and the changes that prove which later ones are repeated."""

    best: Ints
    proofs: Ints


def group_changes(codes: Ints, order: ChangeOrder) -> KeyGroups:
    """Group changes by key and topic-partition. Cost: a sort, but of one partition's in their order."""
    if (order.partition == order.partition[0]).all() and (order.offset[1:] > order.offset[:-1]).all():
        return KeyGroups(np.arange(len(codes)), codes, int(codes.max()) + 1, plain=True)
    sequence = np.lexsort((order.offset, order.partition, codes))
    group = np.cumsum(mark_run_starts(codes[sequence], order.partition[sequence])) - 1
    return KeyGroups(sequence, group, int(group[-1]) + 1)


def find_partition_winners(grouped: KeyGroups, order: ChangeOrder) -> PartitionWinners:
    """Find the last change of each group that does not repeat an older one."""
    last = np.full(grouped.count, -1, np.int64)
    last[grouped.group] = grouped.rows
    groups = np.flatnonzero(last >= 0)
    doubtful = np.zeros(grouped.count, np.bool_)
    doubtful[groups] = order.take(last[groups]).bare
    proofs = []
    places = tuple(np.ascontiguousarray(order.place[:, column]) for column in range(FIRST_NUMBER, order.place.shape[1]))
    source = order.place[:, SOURCE_COLUMN]
    evidence = [(source, places), (source, (order.date,))]
    owner, number, told = paired_numbers(order.place)
    if told.any():
        evidence.append((source ^ owner, (np.where(told, number, NO_VALUE),)))
    for sources, columns in evidence:
        group, top = find_greatest(grouped, sources, columns)
        end = last[group]
        differs = np.logical_or.reduce([column[end] != column[top] for column in columns])
        doubtful[group[(columns[0][end] != NO_VALUE) & differs]] = True
        proofs.append(top)
    if doubtful.any():
        last[doubtful] = _find_unrepeated(grouped, order, doubtful)
    return PartitionWinners(last[groups], np.concatenate(proofs))


def find_greatest(grouped: KeyGroups, source: Ints, columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return for each group and source the first of the changes whose numbers are greatest: (group, change)."""
    rows, group, first = grouped.rows, grouped.group, columns[0] if grouped.plain else columns[0][grouped.rows]
    known = first != NO_VALUE
    if not known.all():
        rows, group, first = rows[known], group[known], first[known]
    if not len(rows):
        return group, rows
    sources = source if len(rows) == len(source) else source[rows]
    own, count, groups = group, grouped.count, np.arange(grouped.count)
    if (sources != sources[0]).any():
        used, number = np.unique(source[rows], return_inverse=True)
        pairs, own = np.unique(group * len(used) + number, return_inverse=True)
        count, groups = len(pairs), pairs // len(used)
    for place, values in enumerate(columns):
        column = first if not place else values[rows]
        most = np.full(count, NO_VALUE, np.int64)
        np.maximum.at(most, own, column)
        is_greatest = column == most[own]
        rows, own = rows[is_greatest], own[is_greatest]
        if len(rows) == np.count_nonzero(most != NO_VALUE):
            break
    greatest = np.full(count, -1, np.int64)
    greatest[own[::-1]] = rows[::-1]
    there = greatest >= 0
    return groups[there], greatest[there]


def _find_unrepeated(grouped: KeyGroups, order: ChangeOrder, doubtful: Mask) -> Ints:
    """Return the last change of each doubtful group that does not repeat an older one, by group."""
    at = np.flatnonzero(doubtful[grouped.group])
    at = at[np.argsort(grouped.group[at], kind="stable")]
    rows, group = grouped.rows[at], grouped.group[at]
    is_new = ~mark_repeated(group, order.take(rows))
    best = np.full(grouped.count, -1, np.int64)
    best[group[is_new]] = rows[is_new]
    return best[doubtful]
