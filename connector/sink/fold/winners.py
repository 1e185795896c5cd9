"""Changes -> one change per key: which change wins (pure rules on columns, no rows move here).

The rules are those of docs/how-it-works and docs/decisions/0024:
1. within one topic-partition Kafka's order decides: the last change of a key wins, unless it is proven to repeat an
   older one (`mark_repeated`);
2. across partitions the source's own position where every candidate carries a comparable one, then the dates (a read
   counts no later than the latest change), then the operation (c > r > u > d), then topic, partition and offset.
A tombstone stands where the change of its key before it in its partition stands.

Folding is associative: what `Decision.kept` gives of parts, folded again, gives the winners of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt

from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Ints, Mask
from serde.events.source_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN

__all__ = [
    "Decision",
    "find_last_known",
    "find_row_images",
    "find_winners",
    "mark_repeated",
    "mark_run_starts",
    "sort_changes",
]

_OP_PRIORITY = np.zeros(256, dtype=np.int64)
for _rank, _op in enumerate("durc", start=1):
    _OP_PRIORITY[ord(_op)] = _rank
_OP_PRIORITY[ord("C")] = _OP_PRIORITY[ord("c")]  # a create that a change of key made (`convert.key_change_headers`)
_OP_READ = ord("r")


@attrs.frozen(eq=False)
class _KeyGroups:
    """Changes by key and topic-partition: `rows` in an order that keeps Kafka's in each group, and `group` of each.

    `plain` tells that they are in that order as they came.
    """

    rows: Ints
    group: Ints
    count: int
    plain: bool = False


@attrs.frozen(eq=False)
class _PartitionWinners:
    """The winner of each key in each partition, and the changes that prove which later ones are repeated."""

    best: Ints
    proofs: Ints


@attrs.frozen(eq=False)
class Decision:
    """What becomes of changes: `codes` tells which key each is of (`keys.key_codes`), `order` what decides.

    Cost: O(n) when changes come in order (the usual case), O(n log n) otherwise.
    """

    codes: Ints
    order: ChangeOrder

    @cached_property
    def winners(self) -> Ints:
        """The index of the winning change of each key, ascending."""
        if not len(self.codes):
            return np.zeros(0, np.int64)
        if self._last is not None:
            return self._last
        return np.sort(_choose_across_partitions(self._find.best, self.codes, self.order))

    def kept(self, *, numbered: bool = False) -> Ints:
        """Return what a later fold with more changes needs of these: winners of partitions, and their proofs.

        `numbered` keeps the changes with the greatest dedup values too, where those are versions.
        """
        if not len(self.codes) or (not numbered and self._last is not None and _is_uniform(self.order)):
            return self.winners
        which = np.zeros(len(self.codes), np.bool_)
        which[self._find.best] = which[self._find.proofs] = True
        if numbered:
            same = np.zeros(len(self.codes), np.int64)
            which[_find_greatest(self._grouped, same, (self.order.dedup,))[1]] = True
        return np.flatnonzero(which)

    @cached_property
    def _grouped(self) -> _KeyGroups:
        return _group_changes(self.codes, self.order)

    @cached_property
    def _last(self) -> Ints | None:
        """The last change of each key as they came, ascending; None unless nothing can speak against it.

        That is so where the changes of each partition came together and in order, none of them can be proven to repeat
        an older one, and no key is in two partitions.
        """
        if not _comes_in_order(self.order) or not _is_ascending(self.order):
            return None
        last = np.full(int(self.codes.max()) + 1, -1, np.int64)
        rows = np.arange(len(self.codes))
        last[self.codes] = rows  # of repeated indices numpy keeps the last assignment
        partition = self.order.partition
        if partition[0] != partition[-1] and (partition[last[self.codes]] != partition).any():
            return None
        chosen = np.zeros(len(self.codes), np.bool_)
        chosen[last[last >= 0]] = True
        return rows[chosen]

    @cached_property
    def _find(self) -> _PartitionWinners:
        return _find_partition_winners(self._grouped, self.order)


def find_winners(codes: Ints, order: ChangeOrder) -> Ints:
    """Return the index of the winning change of each key, ascending (`Decision`)."""
    return Decision(codes, order).winners


def find_row_images(codes: Ints, order: ChangeOrder, winning: Ints, has_image: Mask) -> Ints:
    """For each winner give the change whose row it stands on: itself, or for a tombstone the winner of the rest.

    Returns:
        Aligned with `winning`; -1 where no change of the key has an image.
    """
    if has_image[winning].all():
        return winning
    rows = np.flatnonzero(has_image)
    latest = np.full(int(codes.max()) + 1, -1, np.int64)
    if len(rows):
        chosen = rows[find_winners(codes[rows], order.take(rows))]
        latest[codes[chosen]] = chosen
    return np.where(has_image[winning], winning, latest[codes[winning]])


def sort_changes(codes: Ints, order: ChangeOrder) -> Ints:
    """Return all changes by key in the order of the rules: partitions by their winners, in each Kafka's order."""
    if not len(codes):
        return np.zeros(0, np.int64)
    if (order.partition == order.partition[0]).all():
        return np.lexsort((order.offset, codes))
    grouped = _group_changes(codes, order)
    best = _find_partition_winners(grouped, order).best
    turn = np.empty(grouped.count, np.int64)
    group = np.empty(len(codes), np.int64)
    group[grouped.rows] = grouped.group
    turn[group[best[_sort_by_rule(best, codes, order)]]] = np.arange(len(best))
    return np.lexsort((order.offset, turn[group], codes))


def find_last_known(codes: Ints, order: ChangeOrder, known: Mask) -> Ints:
    """Return for each change the last known one of its key and partition up to it; the first of all where none is."""
    sequence = np.lexsort((order.offset, order.partition, codes))
    first = mark_run_starts(codes[sequence], order.partition[sequence])
    before = np.empty_like(sequence)
    before[sequence] = sequence[np.maximum.accumulate(np.where(known[sequence] | first, np.arange(len(sequence)), 0))]
    return before


def mark_run_starts(*sorted_columns: npt.NDArray[np.integer]) -> Mask:
    """Mark the first row of each run of equal rows; the columns are aligned, and at least one."""
    first = np.ones(len(sorted_columns[0]), np.bool_)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in sorted_columns])
    return first


def _group_changes(codes: Ints, order: ChangeOrder) -> _KeyGroups:
    if (order.partition == order.partition[0]).all() and (order.offset[1:] > order.offset[:-1]).all():
        return _KeyGroups(np.arange(len(codes)), codes, int(codes.max()) + 1, plain=True)
    sequence = np.lexsort((order.offset, order.partition, codes))
    group = np.cumsum(mark_run_starts(codes[sequence], order.partition[sequence])) - 1
    return _KeyGroups(sequence, group, int(group[-1]) + 1)


def _comes_in_order(order: ChangeOrder) -> bool:
    """Tell whether the changes of each partition came together, and in Kafka's order."""
    same = order.partition[1:] == order.partition[:-1]
    if same.all():
        return bool((order.offset[1:] > order.offset[:-1]).all())
    begins = order.partition[np.append(0, np.flatnonzero(~same) + 1)]
    return len(np.unique(begins)) == len(begins) and bool(((order.offset[1:] > order.offset[:-1]) | ~same).all())


def _is_ascending(order: ChangeOrder) -> bool:
    """Tell whether no change of a partition, as they came, can be proven to repeat an older one of it."""
    first, source = np.ascontiguousarray(order.place[:, FIRST_NUMBER]), order.place[:, SOURCE_COLUMN]
    other = order.partition[1:] != order.partition[:-1]
    known = bool((first != NO_VALUE).all())
    if known and ((first[1:] > first[:-1]) | other).all() and ((source[1:] == source[:-1]) | other).all():
        return True
    placed, dated = first != NO_VALUE, order.date != NO_VALUE
    if placed.any():
        places, partition = order.place[placed], order.partition[placed]
        before, after, same = places[:-1], places[1:], partition[1:] == partition[:-1]
        if (same & (before[:, SOURCE_COLUMN] != after[:, SOURCE_COLUMN])).any():
            return False
        descends = after[:, FIRST_NUMBER] < before[:, FIRST_NUMBER]
        for column in range(FIRST_NUMBER + 1, places.shape[1]):
            equal = (before[:, FIRST_NUMBER:column] == after[:, FIRST_NUMBER:column]).all(axis=1)
            descends |= equal & (after[:, column] < before[:, column])
        if (same & descends).any():
            return False
        dated &= not placed[dated].all()
    return _dates_rise(order, dated)


def _dates_rise(order: ChangeOrder, dated: Mask | slice = slice(None)) -> bool:
    """Tell whether dates never fall within a partition; of some of the changes only."""
    dates, partition = order.date[dated], order.partition[dated]
    return bool(((dates[1:] >= dates[:-1]) | (partition[1:] != partition[:-1])).all())


def _is_uniform(order: ChangeOrder) -> bool:
    """Tell whether all changes say of themselves what any says: where they rise, the last one of a key proves all."""
    placed, dated = order.place[:, FIRST_NUMBER] != NO_VALUE, order.date != NO_VALUE
    if (placed.any() and not placed.all()) or (dated.any() and not dated.all()):
        return False
    return not (placed.any() and dated.any()) or _dates_rise(order)


def _find_partition_winners(grouped: _KeyGroups, order: ChangeOrder) -> _PartitionWinners:
    last = np.full(grouped.count, -1, np.int64)
    last[grouped.group] = grouped.rows
    groups = np.flatnonzero(last >= 0)
    doubtful = np.zeros(grouped.count, np.bool_)
    doubtful[groups] = order.take(last[groups]).bare
    proofs = []
    places = tuple(np.ascontiguousarray(order.place[:, column]) for column in range(FIRST_NUMBER, order.place.shape[1]))
    for columns in (places, (order.date,)):
        group, top = _find_greatest(grouped, order.place[:, SOURCE_COLUMN], columns)
        end = last[group]
        differs = np.logical_or.reduce([column[end] != column[top] for column in columns])
        doubtful[group[(columns[0][end] != NO_VALUE) & differs]] = True
        proofs.append(top)
    if doubtful.any():
        last[doubtful] = _find_unrepeated(grouped, order, doubtful)
    return _PartitionWinners(last[groups], np.concatenate(proofs))


def _find_greatest(grouped: _KeyGroups, source: Ints, columns: Sequence[Ints]) -> tuple[Ints, Ints]:
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
        left = column == most[own]
        rows, own = rows[left], own[left]
        if len(rows) == np.count_nonzero(most != NO_VALUE):
            break
    found = np.full(count, -1, np.int64)
    found[own[::-1]] = rows[::-1]
    there = found >= 0
    return groups[there], found[there]


def _find_unrepeated(grouped: _KeyGroups, order: ChangeOrder, doubtful: Mask) -> Ints:
    """Return the last change of each doubtful group that is no repetition, by group."""
    at = np.flatnonzero(doubtful[grouped.group])
    at = at[np.argsort(grouped.group[at], kind="stable")]
    rows, group = grouped.rows[at], grouped.group[at]
    stands = ~mark_repeated(group, order.take(rows))
    best = np.full(grouped.count, -1, np.int64)
    best[group[stands]] = rows[stands]
    return best[doubtful]


def mark_repeated(group: Ints, order: ChangeOrder) -> Mask:
    """Mark the changes that are proven to repeat an older one.

    Proven is what stands at a smaller position than a change before it, if its date does not tell otherwise; and where
    not both say their position, what has an earlier date.

    Args:
        group: key and partition of each change, in runs.
        order: what decides, in Kafka's order within each run.
    """
    count = len(group)
    bare, first = order.bare, mark_run_starts(group)
    told = np.maximum.accumulate(np.where(~bare | first, np.arange(count), 0))
    place, date = order.place[told], order.date[told]
    source = place[:, SOURCE_COLUMN]
    sequence = np.lexsort((np.arange(count), source, group))
    run = np.cumsum(mark_run_starts(group[sequence], source[sequence])) - 1
    place, date = place[sequence], date[sequence]
    where, most_where = _rank_rows(place[:, FIRST_NUMBER:], run)
    when, most_when = _rank_rows(date[:, None], run)
    both = (where > 0) & (most_where > 0)
    older = (when > 0) & (when < most_when)
    newer = (when > 0) & (most_when > 0) & (when > most_when)
    result: Mask = np.empty(count, np.bool_)
    result[sequence] = np.where(both, (where < most_where) & ~newer, older)
    return result


def _rank_rows(columns: npt.NDArray[np.int64], run: Ints) -> tuple[Ints, Ints]:
    """Return the rank of each row of numbers, 0 where it is not known, and the greatest before it in its run."""
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


def _choose_across_partitions(best: Ints, codes: Ints, order: ChangeOrder) -> Ints:
    """Choose among the winners of several partitions of one key (rule 2)."""
    rivals = np.bincount(codes[best])[codes[best]] > 1
    if not rivals.any():
        return best
    alone, several = best[~rivals], best[rivals]
    several = several[_sort_by_rule(several, codes, order)]
    return np.concatenate([alone, several[np.append(mark_run_starts(codes[several])[1:], True)]])


def _sort_by_rule(several: Ints, codes: Ints, order: ChangeOrder) -> Ints:
    """Sort changes of different partitions by key, and of one key by rule 2."""
    key = np.unique(codes[several], return_inverse=True)[1]
    count, own = int(key.max()) + 1, _resolve_tombstones(several, codes, order)
    op, place = own.op, own.place
    comparable = ~_any_per_key(key, place[:, FIRST_NUMBER] == NO_VALUE, count)
    source = np.zeros(count, np.int64)
    source[key] = place[:, SOURCE_COLUMN]
    comparable &= ~_any_per_key(key, place[:, SOURCE_COLUMN] != source[key], count)
    where = np.where(comparable[key][:, None], place[:, FIRST_NUMBER:], 0)
    date = np.where(_any_per_key(key, own.dedup == NO_VALUE, count)[key], 0, own.dedup)
    latest = np.full(count, NO_VALUE, np.int64)
    changes = op != _OP_READ
    np.maximum.at(latest, key[changes], date[changes])
    date = np.where(latest[key] == NO_VALUE, date, np.minimum(date, latest[key]))
    rank = _OP_PRIORITY[op]
    columns = (own.offset, own.partition, rank, date)
    return np.lexsort((*columns, *(where[:, place] for place in reversed(range(where.shape[1]))), key))


def _resolve_tombstones(several: Ints, codes: Ints, order: ChangeOrder) -> ChangeOrder:
    """Return the order of changes; a tombstone has what the change of its key before it in its partition tells."""
    own = order.take(several)
    bare = own.bare
    if not bare.any():
        return own
    before = order.take(find_last_known(codes, order, ~order.bare)[several])
    return attrs.evolve(
        own,
        dedup=np.where(bare, before.dedup, own.dedup),
        place=np.where(bare[:, None], before.place, own.place),
        op=np.where(bare & (before.op == ord("d")), before.op, own.op),
    )


def _any_per_key(key: Ints, mask: Mask, count: int) -> Mask:
    result = np.zeros(count, np.bool_)
    result[key[mask]] = True
    return result
