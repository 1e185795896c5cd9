"""Tables that keep history: when versions begin, whatever the event carries, and what they take from those before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from connector.sink.destinations.iceberg.write_modes.scd2_versions import choose_versions, to_changes, update_versions
from connector.sink.job.compaction import compact_changes, fold_changes
from serde.events.images.unavailable_value import PLACEHOLDER
from tests.model.events import Database, row
from tests.model.recordings import Record
from tests.unit.sink_plans import DATED, dead, plan, rows, run, upsert

TIME = pa.timestamp("us", "UTC")
COLUMNS = {**DATED, "__op": pa.string(), "valid_from": TIME, "valid_to": TIME, "is_current": pa.bool_()}
EVENTS = EventSettings("auto", "auto", ("op", "source.ts_ns"), "__")


def test_a_delete_has_a_time_too() -> None:
    """A hard delete brings no columns, and still tells when the version before it ended; a tombstone tells nothing."""
    database = Database("t", 1)
    database.transaction(("c", row(1, "a")))
    database.transaction(("d", 1))
    made = plan(upsert(0, COLUMNS, ("id",), history=True, tombstones="skip"), events=EVENTS)
    values = [None if record.value is None else json.loads(record.value) for record in database.log]
    outcome = decode(run(*values, keys=[json.loads(record.key or b"") for record in database.log]), made)
    start = 1_700_000_000
    since = [datetime.fromtimestamp(start + step / 1000, UTC) for step in (1, 2)]
    assert [found["valid_from"] for found in rows(outcome)] == since
    assert not dead(outcome)


def test_an_event_without_source_time_is_dead() -> None:
    """A version needs to know when it began: a flattened event without `__source_ts_ns` is a dead letter."""
    made = plan(upsert(0, COLUMNS, ("id",), history=True), events=EVENTS)
    outcome = decode(run({"id": 1, "name": "a", "__deleted": "false"}, keys=[{"id": 1}]), made)
    assert "keeps history" in dead(outcome)[0]


class History:
    """The versions of keys in memory, which takes in a batch as the sink's tasks do."""

    def __init__(self, dedup_column: str = "__source_ts_ns") -> None:
        self._table = upsert(0, COLUMNS, ("id",), history=True, tombstones="skip")
        self._plan = plan(self._table, events=EVENTS, dedup_column=dedup_column)
        self._rows: list[dict[str, Any]] = []

    def take_in(self, log: list[Record]) -> None:
        values = [None if record.value is None else json.loads(record.value) for record in log]
        outcome = decode(run(*values, keys=[json.loads(record.key or b"") for record in log]), self._plan)
        folded = fold_changes(compact_changes(list(outcome.parts), self._table), self._table)
        changes = choose_versions(folded, self._table.identity)
        rows = pa.RecordBatch.from_pylist(self._rows, self._table.layout.rows)
        held = [to_changes(rows, "__op")] if self._rows else []
        replaced, written = update_versions(changes, held, ("id",), self._table.layout.columns)
        gone = {(found["id"], found["valid_from"]) for found in replaced.to_pylist()}
        kept = [found for found in self._rows if (found["id"], found["valid_from"]) not in gone]
        self._rows = [*kept, *written.to_pylist()]

    def tell_current(self) -> list[str]:
        """What the versions have that are not over."""
        return [found["name"] for found in self._rows if found["is_current"]]

    def tell(self) -> list[tuple[int, str]]:
        """What each version has, from the first to the last."""
        return [(found["n"], found["name"]) for found in sorted(self._rows, key=lambda found: found["valid_from"])]


@pytest.mark.parametrize("dedup_column", ["__source_ts_ns", "__source_ts_ms", ""])
def test_a_value_that_was_not_sent_is_the_one_before(dedup_column: str) -> None:
    """Whatever column tells the order of changes elsewhere, a version takes the value of the version before it."""
    database, history = Database("t", 1), History(dedup_column)
    database.transaction(("c", row(1, "large", 1)))
    history.take_in(database.log)
    database.transaction(("u", row(1, PLACEHOLDER, 2)), ("u", row(1, PLACEHOLDER, 3)))
    history.take_in(database.log[1:])
    assert history.tell() == [(1, "large"), (3, "large")]


def test_a_version_that_comes_again_gives_no_value_to_a_later_one() -> None:
    """Where a batch ends within what comes again, the version before may be in the table alone."""
    database, history = Database("t", 1), History()
    for n, name in enumerate(("first", "second", "third")):
        database.transaction(("u" if n else "c", row(1, name, n)))
    history.take_in(database.log)
    database.transaction(("u", row(1, PLACEHOLDER, 3)))
    history.take_in([database.log[3], database.log[0], database.log[1]])
    assert history.tell() == [(0, "first"), (1, "second"), (2, "third"), (3, "third")]


def test_a_part_of_a_transaction_that_comes_again_changes_no_version() -> None:
    """The batch ends within it, behind a later change of the key: the version of all of it is in the table."""
    database, history = Database("t", 1), History()
    database.transaction(("c", row(1, "at first", 1)), ("u", row(1, "at last", 2)))
    history.take_in(database.log)
    database.transaction(("u", row(1, PLACEHOLDER, 3)))
    history.take_in([database.log[2], database.log[0]])
    assert history.tell() == [(2, "at last"), (3, "at last")]


def test_a_part_of_a_transaction_is_completed_by_what_comes_again() -> None:
    """A batch ends within what comes again, and the next one within what comes again once more."""
    database, history = Database("t", 1), History()
    database.transaction(("c", row(1, "at first", 1)), ("u", row(1, "at last", 2)))
    history.take_in([*database.log, database.log[0]])
    history.take_in(database.log[:1])
    database.transaction(("u", row(1, PLACEHOLDER, 3)))
    history.take_in([*database.log[1:], *database.log[:2]])
    assert history.tell() == [(2, "at last"), (3, "at last")]


def test_no_value_goes_over_a_delete() -> None:
    """A delete that only the end of a version tells parts rows: what the later one lacks was not the earlier one's."""
    database, history = Database("t", 1), History()
    database.transaction(("c", row(1, "another", 1)))
    database.transaction(("d", 1))
    history.take_in(database.log)
    database.transaction(("u", row(1, PLACEHOLDER, 2)))
    history.take_in(database.log[-1:])
    assert history.tell() == [(1, "another"), (2, PLACEHOLDER)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_a_change_behind_a_read_is_newer_than_it(together: bool, gone: bool) -> None:
    """A row changes, or goes, while a snapshot runs: the read is dated after it, and was true until the change."""
    database, history = Database("t", 1, rng=Random(1)), History()
    database.rows[1] = row(1, "read", 1)
    database.read(1)
    database.read(1)
    database.transaction(("d", 1) if gone else ("u", row(1, "changed", 2)))
    for log in [database.log] if together else [database.log[:2], database.log[2:]]:
        history.take_in(log)
    assert history.tell() == ([(1, "read")] if gone else [(1, "read"), (2, "changed")])
    assert history.tell_current() == ([] if gone else ["changed"])


def test_what_comes_again_behind_a_read_is_no_newer_than_it() -> None:
    """The changes were before the read, and are sent again: it stays the current version."""
    database, history = Database("t", 1, rng=Random(1)), History()
    for change in (("c", row(1, "made", 1)), ("d", 1), ("c", row(1, "again", 2)), ("u", row(1, "changed", 3))):
        database.transaction(change)
    database.read(1)
    history.take_in(database.log)
    before = history.tell()
    for record in database.log[:-1]:
        if record.value is not None:
            history.take_in([record])
    assert history.tell() == before == [(1, "made"), (2, "again"), (3, "changed"), (3, "changed")]
    assert history.tell_current() == ["changed"]


@pytest.mark.parametrize("dedup_column", ["__source_ts_ns", ""])
@pytest.mark.parametrize("ends", [1, 3])
def test_a_part_that_comes_again_gives_no_value_whatever_orders_changes(dedup_column: str, ends: int) -> None:
    """A version has a time, so that a table without `upsert-dedup-column` too knows which of its changes come again."""
    database, history = Database("t", 1), History(dedup_column)
    database.transaction(("c", row(1, "at first", 1)), ("u", row(1, "at last", 2)))
    database.transaction(("u", row(1, PLACEHOLDER, 3)))
    history.take_in(database.log[:ends])
    history.take_in([*database.log[ends:], database.log[0]] if ends < 3 else database.log[:1])
    history.take_in(database.log[1:])
    assert history.tell() == [(2, "at last"), (3, "at last")]
