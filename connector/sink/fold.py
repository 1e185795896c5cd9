"""Changes -> one change per key: which change wins (pure rules on columns, no rows move here).

The rules are those of docs/how-it-works (design, section 4):
1. within one topic-partition the greatest dedup value wins, then the greatest offset: Kafka's order within a key is the
   source's order, and all events of one transaction share their timestamp;
2. across partitions the greatest dedup value, then the source's own position where every candidate carries it, then the
   operation (c > r > u > d), then topic, partition and offset.
A change without a dedup value (a tombstone) stands where the change of its key before it in its partition stands.

Folding is associative: the winners of parts, folded again, are the winners of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from serde.bits import Ints, Mask

NONE = np.iinfo(np.int64).min
"""Stands for "not known" in the order columns; real values are positive."""

_PRIORITY = np.zeros(256, dtype=np.int64)
for _rank, _op in enumerate("durc", start=1):
    _PRIORITY[ord(_op)] = _rank
_PRIORITY[ord("C")] = _PRIORITY[ord("c")]  # a create that a change of key made (`connector.sink.moves`)


@attrs.frozen(eq=False)
class Order:
    """What decides between changes of one key; one entry per change, all of equal length.

    `partition` is the rank of the change's topic-partition among all of the batch, by topic and number.
    """

    partition: Ints
    offset: Ints
    dedup: Ints
    lsn: Ints
    total_order: Ints
    op: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, indices: Ints) -> Order:
        """Give the same columns at `indices`."""
        return Order(*(getattr(self, field.name)[indices] for field in attrs.fields(Order)))

    @staticmethod
    def concat(parts: Sequence[Order]) -> Order:
        """Join orders end to end."""
        return Order(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in attrs.fields(Order)))


def winners(codes: Ints, order: Order) -> Ints:
    """Give the index of the winning change of each key, ascending.

    Args:
        codes: which key each change is of (`connector.iceberg.codes`).
        order: what decides, aligned with `codes`.

    Cost: O(n) when changes come in order (the usual case), O(n log n) otherwise.
    """
    if not len(codes):
        return np.zeros(0, np.int64)
    known = _placed(codes, order)
    last = _last_in_order(codes, known)
    best = _last_per_partition(codes, known) if last is None else last
    return np.sort(_across_partitions(best, codes, known))


def images(codes: Ints, order: Order, winning: Ints, has_image: Mask) -> Ints:
    """For each winner give the change whose row it stands on: itself, or for a tombstone the winner of the rest.

    Returns:
        Aligned with `winning`; -1 where no change of the key has an image.
    """
    if has_image[winning].all():
        return winning
    rows = np.flatnonzero(has_image)
    latest = np.full(int(codes.max()) + 1, -1, np.int64)
    if len(rows):
        chosen = rows[winners(codes[rows], order.take(rows))]
        latest[codes[chosen]] = chosen
    return np.where(has_image[winning], winning, latest[codes[winning]])


def _placed(codes: Ints, order: Order) -> Order:
    """Give changes without a dedup value the place of the change of their key before them in their partition."""
    missing = order.dedup == NONE
    if not missing.any() or missing.all():
        return order
    before = last_known(codes, order, ~missing)

    def filled(column: npt.NDArray[Any], unknown: int) -> npt.NDArray[Any]:
        return np.where(missing & (column == unknown), column[before], column)

    return attrs.evolve(
        order,
        dedup=filled(order.dedup, NONE),
        lsn=filled(order.lsn, NONE),
        total_order=filled(order.total_order, NONE),
        op=np.where(missing & (order.op[before] == ord("d")), order.op[before], order.op),
    )


def last_known(codes: Ints, order: Order, known: Mask) -> Ints:
    """Give for each change the last known one of its key and partition up to it; the first of all where none is."""
    sequence = np.lexsort((order.offset, order.partition, codes))
    first = first_of_runs(codes[sequence], order.partition[sequence])
    before = np.empty_like(sequence)
    before[sequence] = sequence[np.maximum.accumulate(np.where(known[sequence] | first, np.arange(len(sequence)), 0))]
    return before


def first_of_runs(*sorted_columns: npt.NDArray[np.integer]) -> Mask:
    """Mark the first row of each run of equal rows; the columns are aligned, and at least one."""
    first = np.ones(len(sorted_columns[0]), np.bool_)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in sorted_columns])
    return first


def _last_in_order(codes: Ints, order: Order) -> Ints | None:
    """Give the winners when all changes are of one partition and already in winning order; else None."""
    if (order.partition != order.partition[0]).any():
        return None
    ascending = (order.dedup[1:] >= order.dedup[:-1]) & (order.offset[1:] > order.offset[:-1])
    if not ascending.all():
        return None
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes] = np.arange(len(codes))  # of repeated indices numpy keeps the last assignment
    return last[last >= 0]


def _last_per_partition(codes: Ints, order: Order) -> Ints:
    sequence = np.lexsort((order.offset, order.dedup, order.partition, codes))
    return _last_of_runs(sequence, codes[sequence], order.partition[sequence])


def _last_of_runs(sequence: Ints, *sorted_columns: npt.NDArray[np.integer]) -> Ints:
    first = first_of_runs(*sorted_columns)
    return sequence[np.append(first[1:], True)]


def _across_partitions(best: Ints, codes: Ints, order: Order) -> Ints:
    """Choose among the winners of several partitions of one key (rule 2)."""
    rivals = np.bincount(codes[best])[codes[best]] > 1
    if not rivals.any():
        return best
    alone, several = best[~rivals], best[rivals]
    several = _greatest_dedup(several, codes, order)
    lsn, total = _positions(several, codes, order)
    rank = _PRIORITY[order.op[several]]
    sequence = np.lexsort((order.offset[several], order.partition[several], rank, total, lsn, codes[several]))
    return np.concatenate([alone, _last_of_runs(several[sequence], codes[several][sequence])])


def _greatest_dedup(several: Ints, codes: Ints, order: Order) -> Ints:
    greatest = np.full(int(codes.max()) + 1, NONE, np.int64)
    np.maximum.at(greatest, codes[several], order.dedup[several])
    return several[order.dedup[several] == greatest[codes[several]]]


def _positions(several: Ints, codes: Ints, order: Order) -> tuple[Ints, Ints]:
    """Give (lsn, total order), both zero where a candidate of the same key does not carry it."""
    result = []
    for column in (order.lsn[several], order.total_order[several]):
        absent = np.zeros(int(codes.max()) + 1, np.bool_)
        absent[codes[several][column == NONE]] = True
        result.append(np.where(absent[codes[several]], 0, column))
    return result[0], result[1]
