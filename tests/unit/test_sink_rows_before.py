"""Changes of keys in one batch -> what each row was before, change by change."""

from __future__ import annotations

from typing import Any

import pytest

from serde.events.positions.log_positions import NO_VALUE
from tests.model.rows_before import Event, find_by_tasks, follow


def create(offset: int, old: int, age: tuple[int | None, int, int]) -> Event:
    """A change of key at an offset: the key before, and its date and place."""
    return Event(old, (0, offset), is_row=False, **_tell(age))


def row(
    key: int, value: str | None, age: tuple[int | None, int, int], *, made_at: int | None = None, ended: bool = False
) -> Event:
    """The last row of a life of a key; `made_at`: where the change of key stands that made it."""
    place, moved = (0, made_at or 0), made_at is not None
    return Event(key, place, is_row=True, values=(value,), moved=moved, ended=ended, **_tell(age))


def _tell(age: tuple[int | None, int, int]) -> dict[str, Any]:
    return {"dedup": age[0], "position": None if age[1] == NO_VALUE else (age[1], age[2], 0)}


def told(*events: Event) -> dict[int, tuple[int, str | None, int | None]]:
    """Offset of each change of key -> the key before the batch, the value, the date of the change that took it away."""
    found = find_by_tasks(events, 1)
    expected = {at: (one.key, one.values or (None,), one.changed) for at, one in follow(events).items()}
    assert {at: (one.key, one.values, one.changed) for at, one in found.items()} == expected
    return {offset: (one.key, one.values[0], one.changed) for (_, offset), one in found.items()}


AGES: dict[str, Any] = {
    "places": lambda at, order=0: (None, at, 0),
    "places in transactions": lambda at, order=0: (None, at, order),
    "dates": lambda at, order=0: (at, NO_VALUE, 0),
    "time of processing": lambda at, order=0: (at * 10 + order, at, 0),
}


@pytest.mark.parametrize("ages", AGES)
def test_a_row_is_followed_through_all_its_keys(ages: str) -> None:
    """1 -> 2 -> 3: what the last row leaves out is in the first one, whatever events tell of their order."""
    age = AGES[ages]
    chain = (create(10, 1, age(5, 2)), create(20, 2, age(6, 2)))
    rows = (row(2, None, age(5, 2), made_at=10), row(3, None, age(6, 2), made_at=20))
    changed = age(5, 2)[0]
    assert told(*chain, *rows) == {10: (1, None, changed), 20: (1, None, changed)}
    assert told(*chain, *rows, row(1, "a", age(4)))[20] == (1, "a", changed)


@pytest.mark.parametrize("ages", AGES)
def test_a_row_is_told_from_those_that_got_its_key_since(ages: str) -> None:
    """The row that ended by the change is meant, and not one that got the old key later, or had it before."""
    age = AGES[ages]
    first, ended = row(1, "before", age(3), ended=True), row(1, "own", age(5, 1), ended=True)
    later = row(1, "later", age(6))
    assert told(create(10, 1, age(5, 2)), first, ended, later)[10][:2] == (1, "own")
    # What the table has of the key is asked where the batch knows no row that is early enough.
    assert told(create(10, 1, age(5, 2)), later)[10][:2] == (1, None)


def test_the_row_that_ended_is_meant_where_dates_are_equal() -> None:
    """Two keys are swapped in one transaction whose changes have one date, and no place."""
    age = AGES["dates"](5)
    swap = (create(10, 1, age), create(20, 2, age), create(30, 9, age))
    rows = (
        *(row(1, None, age, ended=True), row(1, None, age, made_at=20)),
        *(row(2, None, age, ended=True), row(2, None, age, made_at=30)),
        row(9, None, age, made_at=10),
    )
    assert told(*swap, *rows) == {10: (1, None, 5), 20: (2, None, 5), 30: (1, None, 5)}


def test_rows_that_tell_nothing_of_their_order_end_somewhere() -> None:
    """Keys that go round in circles, as far as events tell, are followed once around, to what comes first in Kafka."""
    age = (None, NO_VALUE, 0)
    found = told(
        *(create(10, 1, age), create(20, 2, age)),
        *(row(1, None, age, made_at=20), row(2, None, age, made_at=10)),
    )
    assert found == {10: (1, None, None), 20: (1, None, None)}


def test_a_row_that_goes_there_and_back_in_one_transaction_is_followed_by_kafkas_order() -> None:
    """Keys 1 -> 2 -> 1 -> 2 -> 1, all of one date and without a place: each change took the row before it along."""
    age = AGES["dates"](5)
    changes = (create(10, 1, age), create(20, 2, age), create(30, 1, age), create(40, 2, age))
    rows = (
        *(row(1, "a", age, ended=True), row(2, None, age, made_at=10, ended=True)),
        *(row(1, None, age, made_at=20, ended=True), row(2, None, age, made_at=30, ended=True)),
        row(1, None, age, made_at=40),
    )
    assert told(*changes, *rows) == dict.fromkeys((10, 20, 30, 40), (1, "a", 5))
