"""One key in several partitions -> the order of its changes: by place, date, operation, and where they are in Kafka."""

from __future__ import annotations

import numpy as np
import pytest

from connector.sink.fold.order.rival_partitions import choose_across_partitions, sort_by_rule
from connector.sink.model.change_rows import ChangeOrder
from tests.unit.change_orders import make_order

pytestmark = pytest.mark.unit

Change = tuple[str, int, int | None, int | None]
"""Operation, partition, place in the log, date; a letter of its own for each operation."""


def _order(changes: list[Change], sources: list[int] | None = None) -> ChangeOrder:
    ops, partitions, places, dates = zip(*changes, strict=True)
    return make_order(places, dates, ops="".join(ops), partitions=partitions, sources=sources)


@pytest.mark.parametrize(
    ("changes", "winner"),
    [
        ([("u", 0, 9, 10), ("u", 1, 5, 20)], 0),  # the place, whatever the dates
        ([("u", 0, 9, 10), ("u", 1, None, 20)], 1),  # not all have one: the dates
        ([("u", 0, 9, 10), ("u", 1, None, None)], 1),  # nor do all have a date: where they are in Kafka
        ([("u", 0, None, 20), ("u", 1, None, None)], 1),
        ([("u", 0, None, 20), ("c", 1, None, 20)], 1),  # a create begins a row
        ([("c", 0, None, 20), ("d", 1, None, 20)], 0),
        ([("c", 0, None, None), ("d", 1, None, 20)], 0),  # without all dates the operation
        ([("r", 0, None, 30), ("u", 1, None, 20)], 0),  # a read counts no later than the latest change, and wins then
        ([("r", 0, None, 10), ("u", 1, None, 20)], 1),
        ([("r", 0, None, 30), ("c", 1, None, 20)], 1),  # of one date a create wins
        ([("r", 0, None, 30), ("r", 1, None, 20)], 0),  # reads among themselves go by their dates
    ],
)
def test_which_of_several_partitions_wins(changes: list[Change], winner: int) -> None:
    """All of them are compared by the first thing that all of them tell."""
    found = choose_across_partitions(np.arange(len(changes)), np.zeros(len(changes), np.int64), _order(changes))
    assert found.tolist() == [winner]


@pytest.mark.parametrize(("other", "winner"), [(12, 2), (5, 1)])
@pytest.mark.parametrize("last", ["r", "-"])
def test_what_tells_no_place_has_that_of_its_key_in_its_partition(last: str, other: int, winner: int) -> None:
    """A tombstone has that of its delete, a read of the change furthest in the log that its partition has."""
    first = "d" if last == "-" else "u"
    order = _order([(first, 0, 9, 10), (last, 0, None, None if last == "-" else 99), ("u", 1, other, 20)])
    assert choose_across_partitions(np.array([1, 2]), np.zeros(3, np.int64), order).tolist() == [winner]


def test_a_read_has_the_furthest_place_not_the_last_one() -> None:
    """What came again in front of it is older; changes of other keys and partitions tell nothing of it."""
    changes: list[Change] = [
        *[("u", 0, 9, 10), ("u", 0, 4, 5), ("r", 0, None, 99), ("u", 1, 7, 20)],
        *[("u", 0, 30, 40), ("r", 1, None, 99), ("u", 0, 8, 40)],
    ]
    codes = np.array([0, 0, 0, 0, 1, 2, 2])
    order = _order(changes)
    # The other key's read has no place in its own partition: of the update's date, as a read counts no later, it wins.
    assert sorted(choose_across_partitions(np.array([2, 3, 4, 5, 6]), codes, order).tolist()) == [2, 4, 5]


def test_a_read_beside_two_logs_goes_by_its_date() -> None:
    """Places of two logs tell nothing of how far the source had come."""
    order = _order([("u", 0, 9, 10), ("u", 0, 2, 15), ("r", 0, None, 30), ("c", 1, 7, 20)], sources=[1, 2, 1, 1])
    assert choose_across_partitions(np.array([2, 3]), np.zeros(4, np.int64), order).tolist() == [3]


def test_places_of_several_sources_do_not_compare() -> None:
    """Dates decide between logs."""
    order = _order([("u", 0, 9, 10), ("u", 1, 5, 20)], sources=[1, 2])
    assert choose_across_partitions(np.arange(2), np.zeros(2, np.int64), order).tolist() == [1]


def test_each_key_has_its_own_rule() -> None:
    """A key whose changes tell no dates takes nothing from another key's."""
    order = _order([("u", 0, None, 20), ("u", 1, None, 10), ("u", 0, None, 30), ("u", 1, None, None)])
    codes = np.array([4, 4, 6, 6])
    assert sort_by_rule(np.arange(4), codes, order).tolist() == [1, 0, 2, 3]
    assert sorted(choose_across_partitions(np.arange(4), codes, order).tolist()) == [0, 3]


def test_a_key_that_one_partition_has_wins_by_itself() -> None:
    """Only keys of several partitions are compared."""
    order = _order([("u", 0, 9, 10), ("u", 1, 5, 20), ("u", 0, 1, 1)])
    assert sorted(choose_across_partitions(np.arange(3), np.array([0, 0, 1]), order).tolist()) == [0, 2]
