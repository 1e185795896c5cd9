"""Changes of several tasks -> all changes of a key in order, and where the lives of its rows begin. Pure rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from connector.sink.fold.order.key_runs import mark_run_starts
from connector.sink.fold.order.original_order import restore_order
from connector.sink.fold.order.winners import sort_changes
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeBatch, ChangeOrder, compute_key_codes
from serde.arrays import Ints
from serde.events.kinds.operations import OP_CREATE


def sort_by_origin(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Return all changes sorted by key and place, and for each sorted one where its key begins.

    What repeats an older change is where it came first (`order.original_order`): the changes before it in Kafka may be
    of the next row of its key.
    """
    return sort_both_ways(parts, keys)[-1]


def sort_by_date(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the same of changes that go by their timestamps alone."""
    codes = compute_key_codes(parts, keys)
    order = ChangeOrder.concat([part.order for part in parts])
    sequence = np.lexsort((order.offset, order.partition, order.dedup, codes))
    return sequence, _find_key_starts(codes[sequence])


def sort_both_ways(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> list[tuple[Ints, Ints]]:
    """Return all changes sorted by key and place as Kafka has them, and where anything is repeated, by origin too."""
    codes = compute_key_codes(parts, keys)
    order = ChangeOrder.concat([part.order for part in parts])
    sequence = sort_changes(codes, order)
    sequences = [sequence]
    if len(sequence):
        sorted_order = order.take(sequence)
        group = np.cumsum(mark_run_starts(codes[sequence], sorted_order.partition)) - 1
        original = restore_order(group, sorted_order)
        if not np.array_equal(original, np.arange(len(sequence))):
            sequences.append(sequence[original])
    return [(each, _find_key_starts(codes[each])) for each in sequences]


def _find_key_starts(sorted_codes: Ints) -> Ints:
    starts: Ints = np.where(mark_run_starts(sorted_codes), np.arange(len(sorted_codes)), 0)
    return np.maximum.accumulate(starts)


def find_creates(parts: Sequence[ChangeBatch], places: ChangeOrder, keys: Sequence[str]) -> Ints:
    """For every change the last create of its key up to it, -1 without one."""
    sequence, starts = sort_by_origin(parts, keys)
    is_create = np.isin(places.op[sequence], (OP_CREATE, OP_KEY_CHANGE))
    last = np.maximum.accumulate(np.where(is_create, np.arange(len(sequence)), -1))
    result = np.full(len(sequence), -1, np.int64)
    has_create = last >= starts
    result[sequence[has_create]] = sequence[last[has_create]]
    return result


def find_row_starts(parts: Sequence[ChangeBatch], sequence: Ints, starts: Ints) -> Ints:
    """Return for each sorted change where its row's life begins: at the last create before it, else with its key."""
    op = np.concatenate([part.order.op for part in parts])[sequence]
    place = np.where(np.isin(op, (OP_CREATE, OP_KEY_CHANGE)), np.arange(len(sequence)), 0)
    begun: Ints = np.maximum(np.maximum.accumulate(place), starts)
    return begun
