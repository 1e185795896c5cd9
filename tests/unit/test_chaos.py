"""The load of `make chaos` and its comparison: every kind of statement runs, and a planted difference is found."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import pytest

from tests.chaos.comparison import Difference, compare_events, compare_rows
from tests.chaos.load import Load
from tests.chaos.tables import ORDERS, PEOPLE, TABLES, Table

TRANSACTIONS = 600
Rows = list[dict[str, Any]]


def lived(seed: int, transactions: int = TRANSACTIONS) -> dict[str, Rows]:
    """The rows of a database after the load of a seed."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.row_factory = sqlite3.Row
    for table in TABLES:
        database.execute(table.create)
    load = Load(seed)
    for _ in range(transactions):
        database.executescript(load.transaction())
    return {table.name: list(map(dict, database.execute(f"SELECT * FROM {table.name}"))) for table in TABLES}


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    """One load that several tests look at."""
    return lived(7)


def test_a_seed_repeats_its_load(rows: dict[str, Rows]) -> None:
    """The same seed leaves the same rows, another one others."""
    assert lived(7) == rows
    assert lived(8) != rows


def test_the_load_makes_rows_of_all_kinds(rows: dict[str, Rows]) -> None:
    """Rows with nulls, with large values and with small ones are left, of a part of all keys."""
    people = rows["people"]
    assert 30 < len(people) < 300
    assert any(row["big"] and len(row["big"]) > 2_000 for row in people)
    assert any(row["amount"] is None for row in people)
    assert {row["region"] for row in rows["orders"]} == {"north", "south", "east"}


def test_the_load_has_all_statements() -> None:
    """Within some hundred transactions each kind of statement comes, and some are rolled back."""
    load = Load(1)
    text = "".join(load.transaction() for _ in range(TRANSACTIONS))
    for words in ("INSERT INTO people", "INSERT INTO orders", "UPDATE people SET id", "UPDATE orders SET region"):
        assert words in text
    for words in ("DELETE FROM people", "DELETE FROM orders", "UPDATE people SET big", "ROLLBACK", "id % "):
        assert words in text


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_planted_difference_is_found(rows: dict[str, Rows], table: Table) -> None:
    """A row that is missing, left, doubled or stale is told by its key; equal rows are no difference."""
    good = rows[table.name]
    first, second, third = good[0], good[1], good[2]
    stale = {**third, "n": 123_456}
    spare = {**first, "id": 99_999}
    assert compare_rows("t", table, good, list(reversed(good))) is None
    found = compare_rows("t", table, good, [second, second, stale, *good[3:], spare])
    assert found == Difference(
        "t",
        missing=(table.key_of(first),),
        extra=(table.key_of(spare),),
        repeated=(table.key_of(second),),
        changed=((table.key_of(third), ("n",)),),
    )
    assert "/".join(table.key_of(third)) in str(found)
    assert "123456" not in str(found), "a difference must name no values"


def test_values_compare_whatever_program_read_them() -> None:
    """Numbers, decimals and times are the same as texts of JSON and as values of Arrow."""
    from datetime import UTC, datetime
    from decimal import Decimal

    read = {"id": 1, "name": "a", "n": None, "amount": Decimal("1.50"), "big": "b"}
    read["at"] = datetime(2026, 3, 4, 5, 6, 7, 89, UTC)
    told = {"id": 1, "name": "a", "n": None, "amount": Decimal("1.5"), "big": "b"}
    told["at"] = "2026-03-04T06:06:07.000089+01:00"
    assert PEOPLE.values_of(read) == PEOPLE.values_of(told)
    assert ORDERS.key_of({"region": "north", "id": 5}) == ("north", "5")


def test_an_event_that_was_applied_twice_is_found() -> None:
    """Events of an append-only table are counted: one that is missing, or there once more than sent, is told."""
    sent = Counter({("people", "1", "100", "c"): 2, ("people", "2", "200", "u"): 1})
    assert compare_events("log", sent, Counter(sent)) is None
    found = compare_events("log", sent, Counter({("people", "1", "100", "c"): 3}))
    assert found == Difference("log", missing=(("people", "2", "200", "u"),), extra=(("people", "1", "100", "c"),))
