"""Changes of keys -> the winner in each partition, what proves repetitions, and all changes in order (pure rules)."""

from __future__ import annotations

import numpy as np
import pytest

from connector.sink.fold.order.winners import Decision, find_winners, sort_changes
from tests.unit.change_orders import make_order

pytestmark = pytest.mark.unit


def test_changes_of_a_key_stand_in_the_order_of_their_partitions() -> None:
    """Each key's partitions come by their winners, whatever their numbers; within each Kafka's order stays."""
    order = make_order(
        [30, 10, 31, 12, 11, 40, 5, 41],
        [1, 1, 1, 1, 1, 1, 1, 1],
        partitions=[0, 1, 0, 1, 1, 0, 1, 0],
    )
    codes = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    assert sort_changes(codes, order).tolist() == [1, 3, 0, 2, 4, 6, 5, 7]
    assert sort_changes(2 - codes, order).tolist() == [7, 4, 6, 5, 1, 3, 0, 2]


def test_a_partition_stands_where_what_it_does_not_repeat_stands() -> None:
    """Of a partition that ends with a repetition the change counts that this one repeats."""
    order = make_order([20, 90, 30, 25], [2, 9, 3, 2], partitions=[0, 1, 1, 0])
    assert sort_changes(np.zeros(4, np.int64), order).tolist() == [0, 3, 1, 2]


def test_nothing_has_no_order() -> None:
    """Where no changes are left, none stand."""
    nothing = make_order([], [])
    assert len(sort_changes(np.zeros(0, np.int64), nothing)) == len(find_winners(np.zeros(0, np.int64), nothing)) == 0


@pytest.mark.parametrize("several", [[0, 0], [0, 3]])
def test_sources_prove_nothing_against_one_another(several: list[int]) -> None:
    """Changes of a key come from two logs: the last one wins unless its own log has a later place."""
    first, second = several
    codes = np.array([first, first, second, second, second])
    order = make_order([90, 10, 80, 20, 70], [9, 1, 8, 2, 7], sources=[1, 2, 1, 2, 1])
    assert find_winners(codes, order).tolist() == ([3] if first == second else [1, 3])
    order = make_order([90, 10, 80, 20, 70], [9, 1, 8, 2, 7], sources=[1, 1, 1, 1, 1])
    assert find_winners(codes, order).tolist() == ([0] if first == second else [0, 2])


def test_sources_of_several_keys_are_told_apart() -> None:
    """Each key's proofs are those of its own changes."""
    codes = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    order = make_order(
        [50, 60, 70, 5, 80, 6, 40, 65, 71], [5, 6, 7, 1, 8, 1, 4, 6, 7], sources=[1, 1, 1, 2, 2, 2, 1, 1, 1]
    )
    assert find_winners(codes, order).tolist() == [3, 7, 8]


@pytest.mark.parametrize(
    ("numbers", "winner"),
    [
        ([(-2, 3), (-2, 4), (-2, 2)], 1),
        ([(-2, 3), (-2, 4), (-2, 5)], 2),
        ([(-2, 3), (-2, 4), (-4, 2)], 2),  # another server's
        ([(-2, 3), (-4, 9), (-2, 4)], 2),
    ],
)
def test_numbers_of_transactions_contradict_places(numbers: list[tuple[int, int]], winner: int) -> None:
    """A change with a smaller place repeats nothing unless the number of its transaction, by one server, is smaller."""
    order = make_order([8, 9, 5], [None, None, None], pairs=numbers)
    assert find_winners(np.zeros(3, np.int64), order).tolist() == [winner]


def test_numbers_of_transactions_prove_something_to_later_parts() -> None:
    """The change with the greatest number of each server is kept, beside the one furthest in the log."""
    order = make_order([9, 5, 6, 7], [None] * 4, pairs=[(-2, 3), (-2, 8), (-4, 4), (-2, 5)])
    assert Decision(np.zeros(4, np.int64), order).rows_to_keep().tolist() == [0, 1, 2]
    order = make_order([9, 5, 6, 7], [None] * 4, pairs=[(-2, 9), (-2, 8), (-4, 4), (-2, 5)])
    assert Decision(np.zeros(4, np.int64), order).rows_to_keep().tolist() == [0, 2]
    order = make_order([9, 5, 6, 10], [None] * 4, pairs=[(-2, 3), (-2, 8), (-4, 4), (0, 0)])
    assert Decision(np.zeros(4, np.int64), order).rows_to_keep().tolist() == [1, 2, 3]


@pytest.mark.parametrize("count", [3, 40])
def test_the_last_that_repeats_nothing_wins_however_many_there_are(count: int) -> None:
    """Keys with repetitions among many changes in turn: of each the furthest in the log, where Kafka has it last."""
    keys, rounds = count, 6
    codes = np.tile(np.arange(keys), rounds)
    places = [10, 30, 20, 30, 25, 12]
    order = make_order(
        [place * 1000 + key for place in places for key in range(keys)],
        [place for place in places for _ in range(keys)],
    )
    assert find_winners(codes, order).tolist() == [3 * keys + key for key in range(keys)]


def test_what_is_folded_keeps_its_proofs() -> None:
    """A read proves of no change of a later part that it comes again: the one furthest in the log is kept beside it."""
    order = make_order([10, 50, None], [1, 5, None], ops="uur")
    codes = np.zeros(3, np.int64)
    decision = Decision(codes, order)
    assert decision.winners.tolist() == [2]
    kept = decision.rows_to_keep()
    assert kept.tolist() == [1, 2]


def test_each_partition_hands_on_its_winner() -> None:
    """A later fold may have more of either partition: which of the two wins is decided there."""
    order = make_order([None] * 3, [None] * 3, partitions=[0, 0, 1])
    assert Decision(np.zeros(3, np.int64), order).rows_to_keep().tolist() == [1, 2]


def test_a_number_that_no_key_has_wins_nothing() -> None:
    """Keys are numbered by whoever asks, with gaps."""
    assert find_winners(np.array([0, 2, 2]), make_order([5, 9, 3], [1, 2, 1])).tolist() == [0, 1]


def test_partitions_that_come_in_turn_are_told_apart() -> None:
    """Of each partition its own changes prove what comes again there, however they lie."""
    order = make_order([9, 5, 8, 20], [2, 1, 1, 3], partitions=[1, 0, 1, 0])
    assert Decision(np.zeros(4, np.int64), order).rows_to_keep().tolist() == [0, 3]


def test_each_log_hands_on_its_proof() -> None:
    """The furthest change of every log is kept, also of one that has not the winner."""
    order = make_order([90, 50, 10, 95], [2, 2, 1, 3], sources=[1, 2, 2, 1])
    assert Decision(np.zeros(4, np.int64), order).rows_to_keep().tolist() == [1, 3]
