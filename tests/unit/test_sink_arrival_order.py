"""Changes in arrival order -> whether the last of each key is known without a search, as in the usual case it is."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from connector.sink.fold.order.arrival_order import comes_in_order, is_ascending, is_uniform
from connector.sink.model.change_rows import ChangeOrder
from serde.events.positions.log_positions import NO_VALUE

pytestmark = pytest.mark.unit

SOURCE = 7


@attrs.frozen
class _Change:
    """A change of a partition; its place in the log of its source and its date, where it tells them."""

    partition: int = 0
    offset: int = 0
    place: tuple[int, ...] = ()
    date: int | None = None
    source: int = SOURCE


def _order(*changes: _Change) -> ChangeOrder:
    def column(*values: Any) -> Any:
        return np.array([NO_VALUE if value is None else value for value in values], np.int64)

    places = [(each.source, *(each.place or (NO_VALUE,)), 0, 0)[:4] for each in changes]
    date = column(*(each.date for each in changes))
    op = np.full(len(changes), ord("u"), np.uint8)
    where = column(*(each.partition for each in changes)), column(*(each.offset for each in changes))
    return ChangeOrder(*where, date, date, np.array(places, np.int64), op)


def _at(*places: int | tuple[int, ...]) -> ChangeOrder:
    return _order(*(_Change(place=place if isinstance(place, tuple) else (place,)) for place in places))


def _dated(*dates: int | None) -> ChangeOrder:
    return _order(*(_Change(date=date) for date in dates))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([(0, 5)], True),
        ([(0, 5), (0, 6), (0, 9)], True),
        ([(1, 5), (1, 6), (0, 5), (0, 6)], True),
        ([(1, 9), (0, 2), (2, 1)], True),
        ([(0, 5), (0, 4)], False),
        ([(0, 5), (0, 5)], False),
        ([(0, 5), (0, 6), (0, 4)], False),
        ([(0, 5), (0, 7), (0, 6)], False),
        ([(1, 5), (0, 5), (1, 6)], False),
        ([(0, 1), (1, 2), (0, 3)], False),
        ([(0, 5), (0, 6), (1, 9), (1, 8)], False),
        ([(0, 5), (0, 4), (1, 8), (1, 9)], False),
        ([(0, 5), (0, 5), (1, 8)], False),
    ],
)
def test_partitions_come_one_after_another(where: list[tuple[int, int]], expected: bool) -> None:
    """Changes come in order if those of a partition are adjacent, and their offsets rise."""
    assert comes_in_order(_order(*(_Change(*each) for each in where))) is expected


@pytest.mark.parametrize(
    "order",
    [
        _at(5),
        _at(5, 6, 9),
        _at(5, 5, 6),
        _at((5, 1), (5, 2), (6, 0)),
        _at((5, 1, 8), (5, 1, 9), (5, 2, 0)),
        _dated(None, None),
        _dated(5, 5, 6),
        _dated(5, None, 6),
        _order(_Change(place=(5,), date=9), _Change(place=(6,), date=3)),  # a clock that was set back
        _order(_Change(place=(5,), date=9), _Change(), _Change(place=(6,), date=3)),
        _order(_Change(place=(5,)), _Change(), _Change(place=(6,))),
        _order(_Change(place=(5,), date=3), _Change(date=4)),
        _order(_Change(0, place=(5,)), _Change(1, place=(4,))),
        _order(_Change(0, place=(5,)), _Change(1, place=(6,), source=8)),
        _order(_Change(0, date=5), _Change(1, date=4)),
        _order(_Change(0, place=(5, 2)), _Change(1, place=(5, 1))),
    ],
)
def test_no_change_is_a_repetition(order: ChangeOrder) -> None:
    """Places that never fall within a partition and a log prove nothing, nor do dates where places are not told."""
    assert is_ascending(order)


@pytest.mark.parametrize(
    "order",
    [
        _at(5, 4),
        _at(5, 6, 5),
        _at(5, 7, 6),
        _at((5, 2), (5, 1)),
        _at((5, 2), (5, 1), (6, 0)),
        _at((5, 1, 9), (5, 1, 8)),
        _dated(5, 4),
        _dated(5, None, 4),
        _order(_Change(place=(5,)), _Change(place=(6,), source=8)),  # places of two logs do not compare
        _order(_Change(place=(5,)), _Change(), _Change(place=(4,))),
        _order(_Change(place=(5,), date=4), _Change(date=3)),
        _order(_Change(0, place=(5,)), _Change(1, place=(6,)), _Change(1, place=(5,))),
        _order(_Change(0, place=(5,)), _Change(1, place=(6,), source=8), _Change(1, place=(7,))),
        _order(_Change(0, date=5), _Change(1, date=6), _Change(1, date=5)),
    ],
)
def test_a_change_may_be_a_repetition(order: ChangeOrder) -> None:
    """A place or a date that falls may prove that a change came before; so may a place in another log."""
    assert not is_ascending(order)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (_at(5, 4), True),
        (_dated(5, 4), True),
        (_dated(None, None), True),
        (_order(_Change(place=(5,), date=3), _Change(place=(6,), date=3)), True),
        (_order(_Change(place=(5,), date=4), _Change(place=(6,), date=3)), False),
        (_order(_Change(place=(5,)), _Change()), False),
        (_order(_Change(date=5), _Change()), False),
        (_order(_Change(place=(5,), date=3), _Change(place=(6,))), False),
        (_order(_Change(date=3), _Change(place=(6,), date=4)), False),
    ],
)
def test_the_last_change_proves_as_much_as_any(order: ChangeOrder, expected: bool) -> None:
    """All changes tell the same, and where they tell places and dates these agree: others need not be kept."""
    assert is_uniform(order) is expected
