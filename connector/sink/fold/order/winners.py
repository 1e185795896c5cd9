"""Changes -> one change per key: which change wins (pure rules on columns, no rows move here).

The rules are those of docs/how-it-works and docs/decisions/0024:

1. within one topic-partition Kafka's order decides (`fold.partition_winners`): the last change of a key wins, unless it
   is proven to repeat an older one (`fold.repeated_changes`);
2. across partitions (`fold.rival_partitions`) the source's own position decides if every candidate carries a comparable
   one, then the timestamps (a read counts no later than the latest change), then the operation (c > r > u > d), then
   topic, partition and offset.

A tombstone has the position of the change of its key before it in its partition; so has a read, across partitions.
Folding is associative: folding `Decision.rows_to_keep` of all parts gives the winners of the whole.
"""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from connector.sink.fold.order.arrival_order import comes_in_order, is_ascending, is_uniform
from connector.sink.fold.order.partition_winners import (
    KeyGroups,
    PartitionWinners,
    find_greatest,
    find_partition_winners,
    group_changes,
)
from connector.sink.fold.order.rival_partitions import choose_across_partitions, sort_by_rule
from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Ints, Mask


@attrs.frozen(eq=False)
class Decision:
    """The result of folding changes: `codes` numbers the key of each change (`keys.key_codes`), `order` what decides.

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
        return np.sort(choose_across_partitions(self._find.best, self.codes, self.order))

    def rows_to_keep(self, *, numbered: bool = False) -> Ints:
        """Return the rows that a later fold needs: winners of partitions, and the proofs against other changes.

        `numbered` also keeps the changes with the greatest dedup values, if these are versions.
        """
        if not len(self.codes) or (not numbered and self._last is not None and is_uniform(self.order)):
            return self.winners
        which = np.zeros(len(self.codes), np.bool_)
        which[self._find.best] = which[self._find.proofs] = True
        if numbered:
            same = np.zeros(len(self.codes), np.int64)
            which[find_greatest(self._grouped, same, (self.order.dedup,))[1]] = True
        return np.flatnonzero(which)

    @cached_property
    def _grouped(self) -> KeyGroups:
        return group_changes(self.codes, self.order)

    @cached_property
    def _last(self) -> Ints | None:
        """The last change of each key in arrival order, ascending; None unless that is certain to be the winner.

        It is certain if the changes of each partition are adjacent and in order, none of them can be proven to repeat
        an older one, and no key is in two partitions.
        """
        if not comes_in_order(self.order) or not is_ascending(self.order):
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
    def _find(self) -> PartitionWinners:
        return find_partition_winners(self._grouped, self.order)


def find_winners(codes: Ints, order: ChangeOrder) -> Ints:
    """Return the index of the winning change of each key, ascending (`Decision`)."""
    return Decision(codes, order).winners


def find_row_images(codes: Ints, order: ChangeOrder, winning: Ints, has_image: Mask) -> Ints:
    """For each winner return the change that holds its row: itself, or for a tombstone the winner of the other changes.

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
    grouped = group_changes(codes, order)
    best = find_partition_winners(grouped, order).best
    turn = np.empty(grouped.count, np.int64)
    group = np.empty(len(codes), np.int64)
    group[grouped.rows] = grouped.group
    turn[group[best[sort_by_rule(best, codes, order)]]] = np.arange(len(best))
    return np.lexsort((order.offset, turn[group], codes))
