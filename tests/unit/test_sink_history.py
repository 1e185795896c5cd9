"""Tables that keep history: when versions begin, whatever the event carries."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from tests.model.events import Database, row
from tests.unit.sink_plans import DATED, dead, plan, rows, run, upsert

TIME = pa.timestamp("us", "UTC")
COLUMNS = {**DATED, "valid_from": TIME, "valid_to": TIME, "is_current": pa.bool_()}
EVENTS = EventSettings("auto", "auto", ("source.ts_ns",), "__")


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
