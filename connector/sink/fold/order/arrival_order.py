"""Changes in arrival order -> whether they are sorted, so that the last change of a key needs no search. Pure rules."""

from __future__ import annotations

import numpy as np

from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Mask
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN


def comes_in_order(order: ChangeOrder) -> bool:
    """Tell whether the changes of each partition are adjacent and in Kafka's order."""
    same = order.partition[1:] == order.partition[:-1]
    if same.all():
        return bool((order.offset[1:] > order.offset[:-1]).all())
    begins = order.partition[np.append(0, np.flatnonzero(~same) + 1)]
    return len(np.unique(begins)) == len(begins) and bool(((order.offset[1:] > order.offset[:-1]) | ~same).all())


def is_ascending(order: ChangeOrder) -> bool:
    """Tell whether no change of a partition, in arrival order, can be proven to repeat an older one of it."""
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
    """Tell whether timestamps never decrease within a partition; only some of the changes are checked."""
    dates, partition = order.date[dated], order.partition[dated]
    return bool(((dates[1:] >= dates[:-1]) | (partition[1:] != partition[:-1])).all())


def is_uniform(order: ChangeOrder) -> bool:
    """Tell whether all changes carry the same kinds of evidence; if these rise, the last change of a key proves all."""
    placed, dated = order.place[:, FIRST_NUMBER] != NO_VALUE, order.date != NO_VALUE
    if (placed.any() and not placed.all()) or (dated.any() and not dated.all()):
        return False
    return not (placed.any() and dated.any()) or _dates_rise(order)
