"""One key in several partitions -> the order of its changes: by place, date, operation, and where they are in Kafka."""

from __future__ import annotations

import numpy as np
import pytest

from connector.sink.fold.order.rival_partitions import choose_across_partitions, sort_by_rule
from connector.sink.model.change_rows import ChangeOrder
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

pytestmark = pytest.mark.unit

Change = tuple[str, int, int | None, int | None]
"""Operation, partition, place in the log, date; a letter of its own for each operation."""


def _order(changes: list[Change], sources: list[int] | None = None) -> ChangeOrder:
    op, partition, where, when = zip(*changes, strict=True)
    place = unknown_positions(len(changes), 1)
    place[:, 1] = [NO_VALUE if one is None else one for one in where]
    place[place[:, 1] != NO_VALUE, 2:] = 0
    if sources is not None:
        place[:, 0] = sources
    date = np.array([NO_VALUE if one is None else one for one in when], np.int64)
    ops = np.array([ord(one) for one in op], np.uint8)
    return ChangeOrder(np.array(partition, np.int64), np.arange(len(op), dtype=np.int64), date, date, place, ops)


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
    ],
)
def test_which_of_several_partitions_wins(changes: list[Change], winner: int) -> None:
    """All of them are compared by the first thing that all of them tell."""
    found = choose_across_partitions(np.arange(len(changes)), np.zeros(len(changes), np.int64), _order(changes))
    assert found.tolist() == [winner]


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
