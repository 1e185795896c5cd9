"""Changes of keys in one batch -> what each row was before, change by change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connector.sink.destinations.iceberg.lookups import key_changes
from serde.events.source_positions import NO_VALUE
from serde.events.unavailable_value import PLACEHOLDER

COLUMNS = (
    *("_old_0", "_row_0", "_at_partition", "_at_offset", "_at_moved"),
    *("_dedup", "_source", "_first", "_second", "_third", "_ended", "_is_row"),
)
TYPES = (
    *(pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.bool_()),
    *([pa.int64()] * 5),
    *([pa.bool_()] * 2),
)
MADE = ("old", "value", "partition", "offset", "changed")


def create(offset: int, old: int, age: tuple[int | None, int, int]) -> tuple[Any, ...]:
    """A change of key at an offset: the key before, and its date and place."""
    return (old, None, 0, offset, True, age[0], 7, age[1], age[2], 0, False, False)


def row(
    key: int, value: str | None, age: tuple[int | None, int, int], *, made_at: int | None = None, ended: bool = False
) -> tuple[Any, ...]:
    """The last row of a life of a key; `made_at`: where the change of key stands that made it."""
    place = (0, 0, False) if made_at is None else (0, made_at, True)
    return (key, value, *place, age[0], 7, age[1], age[2], 0, ended, True)


def told(*events: tuple[Any, ...]) -> dict[int, tuple[int, str | None, int | None]]:
    """Offset of each change of key -> the key before the batch, the value, the date of the change that took it away."""
    columns = [pa.array(column, kind) for column, kind in zip(zip(*events, strict=True), TYPES, strict=True)]
    found = key_changes.follow(pa.table(columns, list(COLUMNS)), ["_old_0"], ["_row_0"], [pa.string()], MADE)
    return {one["offset"]: (one["old"], one["value"], one["changed"]) for one in found.to_pylist()}


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
    rows = (row(2, PLACEHOLDER, age(5, 2), made_at=10), row(3, PLACEHOLDER, age(6, 2), made_at=20))
    changed = age(5, 2)[0]
    assert told(*chain, *rows) == {10: (1, None, changed), 20: (1, PLACEHOLDER, changed)}
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
        *(row(1, None, age, ended=True), row(1, PLACEHOLDER, age, made_at=20)),
        *(row(2, None, age, ended=True), row(2, PLACEHOLDER, age, made_at=30)),
        row(9, PLACEHOLDER, age, made_at=10),
    )
    assert told(*swap, *rows) == {10: (1, None, 5), 20: (2, None, 5), 30: (1, PLACEHOLDER, 5)}


def test_rows_that_tell_nothing_of_their_order_end_somewhere() -> None:
    """Keys that go round in circles, as far as events tell, are followed once around."""
    age = (None, NO_VALUE, 0)
    found = told(
        *(create(10, 1, age), create(20, 2, age)),
        *(row(1, PLACEHOLDER, age, made_at=20), row(2, PLACEHOLDER, age, made_at=10)),
    )
    assert set(found) == {10, 20}
