"""Envelopes whose columns are {value, set} -> plain rows: YugabyteDB's documentation, "Message formats for replica
identities".
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.fold.values.unavailable_values import fill_in_batch
from connector.sink.model.plan import TablePlan
from tests.unit import sink_plans

SOURCE = {"connector": "yugabytedb", "name": "s", "db": "d", "schema": "public", "table": "employee", "ts_ms": 1}
SOURCE |= {"ts_ns": 1_700_000_000_000_000_001, "lsn": "1:4::0:0"}
TYPES = {
    "employee_id": pa.int64(),
    "employee_name": pa.string(),
    "employee_dept": pa.string(),
    "__deleted": pa.string(),
}
KEYS = ("employee_id",)
LEFT_OUT = object()


def cells(**values: Any) -> dict[str, Any]:
    return {name: None if v is LEFT_OUT else {"value": v, "set": True} for name, v in values.items()}


def row(number: int, name: Any, dept: Any) -> dict[str, Any]:
    return cells(employee_id=number, employee_name=name, employee_dept=dept)


def event(op: str, number: int, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {**SOURCE, "ts_ns": SOURCE["ts_ns"] + number}, "op": op}


INSERT = event("c", 0, row(1001, "Alice", "Packaging"))
UPDATE = event("u", 1, row(1001, "Bob", LEFT_OUT))
FULL_UPDATE = event("u", 1, row(1001, "Bob", "Packaging"), row(1001, "Alice", "Packaging"))
DELETE = event("d", 2, before=row(1001, LEFT_OUT, LEFT_OUT))


def table(**more: Any) -> TablePlan:
    return attrs.evolve(sink_plans.upsert(0, TYPES, KEYS, **more), takes_patches=True, patches=True)


def _schema(kind: str, optional: bool = True) -> dict[str, Any]:
    fields = [{"type": kind, "optional": True, "field": "value"}, {"type": "boolean", "field": "set"}]
    return {"type": "struct", "optional": optional, "fields": fields}


def with_schema(value: dict[str, Any]) -> dict[str, Any]:
    columns = [
        {**_schema("int64", optional=False), "field": "employee_id"},
        {**_schema("string"), "field": "employee_name"},
        {**_schema("string"), "field": "employee_dept"},
    ]
    image = {"type": "struct", "optional": True, "fields": columns}
    told = [{"type": "int64" if name.startswith("ts") else "string", "field": name} for name in SOURCE]
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, {"type": "string", "field": "op"}]
    fields.append({"type": "struct", "fields": told, "field": "source"})
    return {"schema": {"type": "struct", "name": "s.public.employee.Envelope", "fields": fields}, "payload": value}


def parts(events: list[Any], plan: TablePlan, key: Any) -> Any:
    outcome = decode(sink_plans.run(*events, keys=[key] * len(events)), sink_plans.plan(plan))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    return list(outcome.parts)


def final(events: list[Any], key: Any) -> dict[str, Any]:
    folded = fill_in_batch(fold(parts(events, table(), key), KEYS), KEYS)
    rows = [each for part in folded.parts for each in part.rows.to_pylist()]
    (winner,) = folded.images.tolist()
    return rows[winner]


KEY_FORMS = {"cells": cells(employee_id=1001), "plain": {"employee_id": 1001}}


@pytest.mark.parametrize("key", KEY_FORMS)
@pytest.mark.parametrize("schemas", [False, True], ids=["bare", "schemas"])
@pytest.mark.parametrize("update", [UPDATE, FULL_UPDATE], ids=["change", "full"])
def test_the_documented_events_are_plain_rows(key: str, schemas: bool, update: Any) -> None:
    """Insert, update by either identity and delete; what an update leaves out is what it was."""
    form = with_schema if schemas else dict
    events = [form(one) for one in (INSERT, update, DELETE)]
    (need,) = decode(sink_plans.run(*events, keys=[KEY_FORMS[key]] * 3), sink_plans.plan()).needs
    assert {f.name: f.type for f in need.row if f.name in TYPES} == TYPES and need.key is not None
    assert need.key.field("employee_id").type == pa.int64()
    bob = {"employee_id": 1001, "employee_name": "Bob", "employee_dept": "Packaging", "__deleted": "false"}
    assert final(events[:2], KEY_FORMS[key]) == bob
    (made,) = parts(events[2:], table(keep_deletes=False), KEY_FORMS[key])
    assert made.deleted.tolist() == [True] and made.rows["employee_id"].to_pylist() == [1001]


@pytest.mark.parametrize("schemas", [False, True], ids=["bare", "schemas"])
def test_a_null_that_was_set_is_one(schemas: bool) -> None:
    """A column that an update sets to null is null; one that it leaves out is not."""
    form = with_schema if schemas else dict
    events = [form(INSERT), form(event("u", 1, row(1001, LEFT_OUT, None)))]
    assert final(events, KEY_FORMS["cells"])["employee_dept"] is None
    assert final(events, KEY_FORMS["cells"])["employee_name"] == "Alice"
    unset = {"employee_name": {"value": None, "set": False}}
    events[1] = form(event("u", 1, {**row(1001, LEFT_OUT, "Sales"), **unset}))
    assert final(events, KEY_FORMS["cells"])["employee_name"] == "Alice"


@pytest.mark.parametrize("schemas", [False, True], ids=["bare", "schemas"])
def test_updates_of_one_batch_each_leave_what_they_do_not_set(schemas: bool) -> None:
    """What an update sets stays for the next one that leaves it out, whatever was null between."""
    form = with_schema if schemas else dict
    rows = [
        row(1001, "Bob", LEFT_OUT),
        row(1001, LEFT_OUT, None),
        row(1001, LEFT_OUT, "Sales"),
        row(1001, "Eve", LEFT_OUT),
    ]
    events = [form(event("u", number, each)) for number, each in enumerate(rows, 1)]
    told = [("Bob", "Packaging"), ("Bob", None), ("Bob", "Sales"), ("Eve", "Sales")]
    for count, (name, dept) in enumerate(told, 1):
        made = final([form(INSERT), *events[:count]], KEY_FORMS["cells"])
        assert (made["employee_name"], made["employee_dept"]) == (name, dept)
    # Without the row before them they are one change.
    folded = fill_in_batch(fold(parts(events, table(), KEY_FORMS["cells"]), KEYS), KEYS)
    (winner,) = folded.images.tolist()
    (part,) = folded.parts
    assert part.patches is not None and part.patches[winner].as_py() is not None
    assert part.rows.slice(winner, 1).to_pylist()[0]["employee_dept"] == "Sales"


def test_an_update_alone_leaves_what_no_event_of_its_batch_gives() -> None:
    """Without schema a column that is null in all events is in none: the table knows it."""
    (part,) = parts([UPDATE, UPDATE], table(), KEY_FORMS["plain"])
    assert part.patches is not None and part.patches.null_count == 0


@pytest.mark.parametrize("first", [event("t", 0), b"{", {"ts_ms": 1}], ids=["truncate", "garbage", "heartbeat"])
def test_what_stands_before_the_first_row_does_not_tell_of_cells(first: Any) -> None:
    """Rows behind an event without a row, or a message that cannot be read, are read as they are alone."""
    outcome = decode(sink_plans.run(first, INSERT, keys=[None, KEY_FORMS["cells"]]), sink_plans.plan(table()))
    rows = [each["employee_name"] for part in outcome.parts for each in part.rows.to_pylist()]
    assert rows == ["Alice"] and 1 not in sink_plans.dead(outcome)


def test_updates_without_their_row_wait_for_the_tables() -> None:
    """Of an update alone nothing is made up: what it leaves out is looked up."""
    (made,) = parts([UPDATE, INSERT], table(), KEY_FORMS["cells"])
    assert made.patches is not None and np.asarray(made.patches.is_valid()).tolist() == [True, False]
    (made,) = parts([INSERT, FULL_UPDATE], table(), KEY_FORMS["cells"])
    assert made.patches is None or made.patches.null_count == 2


def test_tables_of_every_event_have_what_each_says() -> None:
    """Appended rows have null for what an event leaves out."""
    made = parts([INSERT, UPDATE], sink_plans.append(0, TYPES), KEY_FORMS["cells"])
    rows = [each for part in made for each in part.rows.to_pylist()]
    assert [each["employee_dept"] for each in rows] == ["Packaging", None]


@pytest.mark.parametrize(
    ("value", "connector"),
    [
        ({"value": 1}, "yugabytedb"),
        ({"value": 1, "set": True, "deletion_ts": None}, "cassandra"),
        ({"set": "x", "value": 1}, "yugabytedb"),
    ],
)
def test_other_structs_stay_as_they_are(value: dict[str, Any], connector: str) -> None:
    """Cassandra's cells, and a struct column of a row, are no such cells."""
    source = {**SOURCE, "connector": connector}
    source |= {"cluster": "c", "keyspace": "k"} if connector == "cassandra" else {}
    told = {"before": None, "after": {"id": value}, "source": source, "op": "c"}
    (need,) = decode(sink_plans.run(told), sink_plans.plan(upserts=False)).needs
    assert pa.types.is_struct(need.row.field("id").type)
    plain = {"before": None, "after": {"id": 1, "c": {"value": 1, "set": True}}, "source": SOURCE, "op": "c"}
    (need,) = decode(sink_plans.run(orjson.dumps(plain)), sink_plans.plan()).needs
    assert pa.types.is_struct(need.row.field("c").type)
