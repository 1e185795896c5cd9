"""Which changes of a key are proven to repeat an older one: by place, by date, by transaction."""

from __future__ import annotations

import numpy as np
import pytest

from connector.sink.fold.order.repeated_changes import mark_repeated, rank_rows
from connector.sink.model.change_rows import ChangeOrder
from serde.events.positions.log_positions import NO_VALUE
from tests.unit.change_orders import make_order

pytestmark = pytest.mark.unit

Evidence = tuple[int | None, int | None]
"""The place in the log and the date of a change, None where it tells none."""
SERVER, OTHER = -7, -5


def _order(
    *changes: Evidence, sources: list[int] | None = None, pairs: list[tuple[int, int]] | None = None
) -> ChangeOrder:
    places, dates = zip(*changes, strict=True)
    return make_order(places, dates, sources=sources, pairs=pairs)


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ([(5, 10), (6, 11)], False),
        ([(6, 10), (5, 10)], True),  # of one date: the place decides
        ([(6, 10), (5, 9)], True),
        ([(6, 10), (5, 11)], False),  # the date contradicts it
        ([(5, 10), (6, 9)], False),  # a place that grows is none, whatever the date
        ([(5, 10), (5, 9)], False),
        ([(5, None), (6, 9)], False),
        ([(6, None), (5, 9)], True),
        ([(6, 10), (5, None)], True),
        ([(6, 10), (None, 9)], True),  # one of them has no place: the dates decide
        ([(6, 10), (None, 11)], False),
        ([(6, 10), (None, None)], False),
        ([(None, 10), (5, 9)], True),
        ([(None, 10), (5, 11)], False),
        ([(None, 10), (None, 9)], True),
        ([(None, 10), (None, 10)], False),
        ([(None, None), (None, 9)], False),
        ([(7, 10), (8, 11), (6, 10)], True),  # the greatest before it counts
        ([(8, 11), (7, 10), (8, 11)], False),
    ],
)
def test_what_proves_a_repetition(changes: list[Evidence], repeated: bool) -> None:
    """The last change repeats an older one if its place says so and its date does not contradict; by its date where not
    both have a place.
    """
    order = _order(*changes)
    assert mark_repeated(np.zeros(len(changes), np.int64), order).tolist()[-1] is repeated


def test_other_keys_and_other_sources_prove_nothing() -> None:
    """Changes are compared within their key and partition, and their source."""
    changes: list[Evidence] = [(9, 20), (5, 10), (6, 11), (4, 9)]
    assert mark_repeated(np.array([0, 1, 1, 2]), _order(*changes)).tolist() == [False, False, False, False]
    assert mark_repeated(np.zeros(4, np.int64), _order(*changes)).tolist() == [False, True, True, True]
    by_source = _order(*changes, sources=[1, 2, 2, 1])
    assert mark_repeated(np.zeros(4, np.int64), by_source).tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("pairs", "repeated"),
    [
        ([(SERVER, 3), (SERVER, 2)], True),
        ([(SERVER, 3), (SERVER, 3)], False),  # its transaction may have begun in another log
        ([(SERVER, 3), (SERVER, 4)], False),
        ([(SERVER, 3), (OTHER, 2)], False),  # another server's number, the first of its kind
        ([(SERVER, 3), (0, 0)], True),  # nothing numbers it
    ],
)
def test_the_number_of_a_transaction_contradicts_a_place(pairs: list[tuple[int, int]], repeated: bool) -> None:
    """MySQL's servers number transactions: what does not have a smaller one than before repeats nothing."""
    marks = mark_repeated(np.zeros(2, np.int64), _order((8, None), (5, None), pairs=pairs))
    assert marks.tolist() == [False, repeated]


def test_numbers_of_transactions_are_those_of_a_key() -> None:
    """Another key's transactions have no part in it, whatever server numbered them."""
    pairs = [(SERVER, 9), (SERVER, 3), (SERVER, 4), (SERVER, 2), (OTHER, 4), (OTHER, 3)]
    order = _order((9, None), (8, None), (7, None), (5, None), (6, None), (4, None), pairs=pairs)
    marks = mark_repeated(np.array([0, 1, 1, 1, 1, 1]), order)
    assert marks.tolist() == [False, False, False, True, False, True]


def test_ranks_go_by_rows_and_the_greatest_before_by_runs() -> None:
    """Equal rows have one rank, unknown ones have 0, and a run knows nothing of the one before it."""
    rows = np.array([[3, 1], [3, 2], [3, 1], [NO_VALUE, 0], [1, 9], [3, 1]], np.int64)
    rank, before = rank_rows(rows, np.array([0, 0, 0, 0, 1, 1]))
    # Unknown ones take part in the ranks' numbers.
    assert (rank - 1).tolist() == [2, 3, 2, -1, 1, 2]
    assert (before - 1).tolist() == [-1, 2, 3, 3, -1, 1]
    lone, nothing = rank_rows(np.array([[9], [NO_VALUE], [5]], np.int64), np.array([0, 1, 1]))
    assert (lone[1], nothing.tolist()) == (0, [0, 0, 0])
