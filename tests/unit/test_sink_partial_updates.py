"""Envelopes whose updates leave columns out -> rows: what Debezium's Spanner and Cassandra pages print, and mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.fold.values.unavailable_values import fill_in_batch
from connector.sink.model.plan import TablePlan
from tests.unit import sink_plans

MANY = 300
"""So many events of one layout are read by what they have in common."""

USERS = {"id": pa.int64(), "first_name": pa.string(), "email": pa.string(), "__deleted": pa.string()}
CUSTOMERS = {
    "id": pa.int64(),
    "registration_date": pa.int64(),
    "first_name": pa.string(),
    "email": pa.string(),
    "__deleted": pa.string(),
}
# Spanner page, "Change event values".
SPANNER = {"version": "3.5.0.Final", "connector": "spanner", "name": "spanner_connector", "snapshot": "false"}
SPANNER |= {"db": "database", "sequence": "1", "table": "Users", "ts_ms": 1670955531785, "mod_number": 0}
# Cassandra page, "Change event values"; its dates there have the digits of smaller units.
CASSANDRA = {"version": "3.5.0.Final", "connector": "cassandra", "cluster": "cassandra-cluster-1", "snapshot": False}
CASSANDRA |= {"keyspace": "inventory", "table": "customers", "file": "commitlog-6-123456.log", "pos": 54}


def spanner(op: str, after: Any, before: Any = None, capture: str = "OLD_AND_NEW_VALUES") -> dict[str, Any]:
    return {"before": before, "after": after, "source": {**SPANNER, "value_capture_type": capture}, "op": op}


def cassandra(op: str, number: int = 0, deleted_at: int | None = None, **values: Any) -> dict[str, Any]:
    """An event of a customer's row; columns that are not named are not set."""
    given = {"id": 1001, "registration_date": 1562202942545, **values}
    cells = {name: {"value": value, "deletion_ts": deleted_at, "set": True} for name, value in given.items()}
    after = {name: cells.get(name) for name in CUSTOMERS if name != "__deleted"}
    source = {**CASSANDRA, "ts_us": 1562202942666382 + number, "ts_ms": 1562202942666, "pos": 54 + number}
    return {"op": op, "ts_ms": 1562202942912, "after": after, "source": source}


def table(types: dict[str, pa.DataType], keys: Sequence[str], **more: Any) -> TablePlan:
    plan = sink_plans.upsert(0, types, tuple(keys))
    return attrs.evolve(plan, **{"takes_patches": True, "patches": True, **more})


def final(events: list[Any], plan: TablePlan, key: Any) -> dict[str, Any]:
    """The row of the events' only key."""
    outcome = decode(sink_plans.run(*events, keys=[key] * len(events)), sink_plans.plan(plan))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    keys = plan.layout.keys
    folded = fill_in_batch(fold(list(outcome.parts), keys), keys)
    rows = [each for part in folded.parts for each in part.rows.to_pylist()]
    (winner,) = folded.images.tolist()
    return rows[winner]


ANNE = {"id": 1, "first_name": "Anne", "email": "annek@noanswer.org"}
USER_KEY = {"id": 1}


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("capture", "before", "after", "email"),
    [
        ("OLD_AND_NEW_VALUES", {"first_name": "Anne"}, {"first_name": "Anne Marie"}, "annek@noanswer.org"),
        ("OLD_AND_NEW_VALUES", {"email": "annek@noanswer.org"}, {"email": None}, None),
        ("NEW_VALUES", {}, {"first_name": "Anne Marie"}, "annek@noanswer.org"),
        ("NEW_ROW", {}, {"first_name": "Anne Marie"}, None),
        ("NEW_ROW_AND_OLD_VALUES", {"email": "annek@noanswer.org"}, {"first_name": "Anne Marie"}, None),
    ],
)
def test_what_spanner_did_not_modify_stays(count: int, capture: str, before: Any, after: Any, email: Any) -> None:
    """Of an update a change stream captures the modified columns, unless it captures rows."""
    none = dict.fromkeys(ANNE)
    update = spanner("u", {**none, **after, "id": 1}, {**none, **before, "id": 1}, capture)
    row = final([spanner("c", ANNE), *[update] * count], table(USERS, ("id",)), USER_KEY)
    assert row["email"] == email
    wanted = {**ANNE, **after} if "ROW" not in capture else {**none, **after, "id": 1}
    assert row["first_name"] == wanted["first_name"]


def test_a_modified_row_alone_waits_for_the_tables() -> None:
    """What an update leaves out is looked up; an update of all columns, and a table of every event, ask for nothing."""
    none = dict.fromkeys(ANNE)
    partial = spanner("u", {**none, "id": 1, "email": "x"}, {**none, "id": 1, "email": "y"})
    whole = spanner("u", {**ANNE, "email": "x"}, ANNE)
    run = sink_plans.run(partial, whole, keys=[USER_KEY] * 2)
    (part,) = decode(run, sink_plans.plan(table(USERS, ("id",)))).parts
    assert part.patches is not None and np.asarray(part.patches.is_valid()).tolist() == [True, False]
    outcome = decode(run, sink_plans.plan(sink_plans.append(0, USERS)))
    assert [row["first_name"] for row in sink_plans.rows(outcome)] == [None, "Anne"]


KEY = {"id": 1001, "registration_date": 1562202942545}
INSERT = cassandra("i", first_name="Anne", email="annek@noanswer.org")
UPDATE = cassandra("u", 1, email="annek_new@noanswer.org")
UNSET = cassandra("u", 2, first_name=None)
DELETE = {**cassandra("d", 3, deleted_at=1562202972545)}


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("op", ["i", "c"])
def test_cassandras_cells_are_the_columns_of_a_row(op: str, count: int) -> None:
    """An insert, an update of one column, and one that makes a column null; a table of one row per key has the row."""
    insert, plan = {**INSERT, "op": op}, table(CUSTOMERS, list(KEY))
    (need,) = decode(sink_plans.run(*[insert] * count, keys=[KEY] * count), sink_plans.plan(upserts=True)).needs
    assert {field.name: field.type for field in need.row if field.name in KEY} == {
        name: CUSTOMERS[name] for name in KEY
    }
    row = {**KEY, "first_name": "Anne", "email": "annek_new@noanswer.org", "__deleted": "false"}
    assert final([*[insert] * count, UPDATE], plan, KEY) == row
    assert final([*[insert] * count, UPDATE, UNSET], plan, KEY) == {**row, "first_name": None}
    into = cassandra("i", 3, email="again@noanswer.org")
    assert final([insert, *[into] * count], plan, KEY) == {**row, "email": "again@noanswer.org"}
    whole = {**into, "source": {**into["source"], "file": "", "pos": -1, "snapshot": True}}
    assert final([insert, *[whole] * count], plan, KEY)["first_name"] is None


def test_cassandras_deletes_take_the_row() -> None:
    """The key is in `after`, beside columns that have a time of deletion and no value."""
    outcome = decode(sink_plans.run(INSERT, DELETE, keys=[KEY] * 2), sink_plans.plan(table(CUSTOMERS, list(KEY))))
    assert sink_plans.dead(outcome) == {}
    gone = {
        int(at): bool(flag) for part in outcome.parts for at, flag in zip(part.order.offset, part.deleted, strict=True)
    }
    assert gone == {100: False, 101: True}


def test_a_range_that_cassandra_deletes_is_no_row_and_no_truncate() -> None:
    """Its event has the partition's key and two ends; `t` is what EnvelopeTransformation makes of its `r`."""
    ends = {"_range_start": {"method": "INCL_START_BOUND"}, "_range_end": {"method": "INCL_END_BOUND"}}
    deleted = cassandra("r", 4)
    deleted["after"] = {"id": deleted["after"]["id"], **ends}
    run = sink_plans.run(INSERT, deleted, {**deleted, "op": "t"}, keys=[KEY] * 3)
    outcome = decode(run, sink_plans.plan(table(CUSTOMERS, list(KEY))))
    assert sorted(sink_plans.dead(outcome)) == [1, 2] and not outcome.truncates
    appended = decode(run, sink_plans.plan(upserts=False))
    assert sorted(sink_plans.dead(appended)) == [2] and not appended.truncates


def test_tables_of_every_event_have_cassandras_cells_as_they_came() -> None:
    """Appended, all that a cell says is kept."""
    (need,) = decode(sink_plans.run(*[INSERT] * MANY, DELETE), sink_plans.plan(upserts=False)).needs
    assert set(need.row.field("email").type.names) <= {"value", "deletion_ts", "set"}
    assert pa.types.is_struct(need.row.field("email").type)


@pytest.mark.parametrize("event", [UPDATE, spanner("u", {"id": 1, "email": "x"}, {"id": 1, "first_name": None})])
def test_what_an_update_leaves_out_is_no_null(event: dict[str, Any]) -> None:
    """Where no row completes it (history, indexes) an update is a dead letter that says why."""
    types, key = (USERS, USER_KEY) if event is not UPDATE else (CUSTOMERS, KEY)
    plan = table(types, list(key), takes_patches=False, patches=False)
    told = {**event, "after": {name: event["after"].get(name) for name in types if name != "__deleted"}}
    outcome = decode(sink_plans.run(told, keys=[key]), sink_plans.plan(plan))
    assert "only the columns that it set" in sink_plans.dead(outcome)[0] and not outcome.parts
