"""Events without schema that name their tables: empty lists and objects are values of the columns that a table has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import BatchPlan
from tests.unit.sink_plans import append, dead, plan, routing, rows, run, upsert

PLAIN = {"id": pa.int64(), "kind": pa.string()}
ITEMS = pa.list_(pa.struct([("b", pa.string())]))
NESTED = {**PLAIN, "tags": pa.list_(pa.int64()), "s": pa.struct([("a", pa.int64())]), "deep": ITEMS}


def _plan(*tables: dict[str, pa.DataType], **changed: Any) -> BatchPlan:
    names = [f"a.t{index}" for index, _ in enumerate(tables)]
    made = [append(index, columns) for index, columns in enumerate(tables)]
    return plan(*made, routing=routing(RouteSettings("kind", dynamic=True), *names), **changed)


@pytest.mark.parametrize("evolve", [True, False])
def test_empty_values_of_a_tables_own_columns_are_kept(evolve: bool) -> None:
    """An empty list or object is no null, whatever else the batch has, and whichever tables take the event in alike."""
    event = {"tags": [], "s": {}, "deep": [{}]}
    values = [{"id": at, "kind": f"a.t{at}", **event} for at in range(2)]
    outcome = decode(run(*values), _plan(NESTED, NESTED, evolve=evolve))
    made = {"tags": [], "s": {"a": None}, "deep": [{"b": None}]}
    assert [rows(outcome, at) for at in range(2)] == [[{"id": at, "kind": f"a.t{at}", **made}] for at in range(2)]
    assert (dead(outcome), outcome.needs) == ({}, ())


def test_empty_values_make_no_column_of_another_table() -> None:
    """A table that lacks the columns gets none of a type that nobody knows, neither a new one nor one that is there."""
    empties = {"tags": [], "s": {}, "deep": [{}]}
    names = ("a.t0", "a.t1", "b.new")
    values = [{"id": at, "kind": name, **empties} for at, name in enumerate(names)]
    outcome = decode(run(*values), _plan(NESTED, PLAIN))
    assert rows(outcome, 1) == [{"id": 1, "kind": "a.t1"}]
    assert [(need.table, need.row.names) for need in outcome.needs] == [("b.new", ["id", "kind"])]


def test_empty_values_within_a_column_make_no_field_of_it() -> None:
    """What is empty within a struct that the table has decides no type there."""
    outcome = decode(run({"id": 1, "kind": "a.t0", "s": {"a": 1, "more": [], "other": {}}}), _plan(NESTED))
    assert rows(outcome) == [{"id": 1, "kind": "a.t0", "tags": None, "s": {"a": 1}, "deep": None}]
    assert outcome.needs == ()


def test_empty_values_of_documents_are_kept() -> None:
    """An empty array or document in one of MongoDB's is no null either."""
    columns = {"_id": pa.string(), "tags": pa.list_(pa.int64()), "s": pa.struct([("a", pa.int64())])}
    table = upsert(0, {**columns, "__deleted": pa.string()}, ("_id",))
    source = {"connector": "mongodb", "name": "m", "db": "d", "collection": "c", "ts_ms": 1, "ord": 1}
    after = '{"_id": "a", "tags": [], "s": {}, "fresh": []}'
    event = {"op": "c", "before": None, "after": after, "source": source}
    routes = routing(RouteSettings("source.collection", dynamic=True), "c")
    outcome = decode(run(event, keys=[{"id": '"a"'}]), plan(table, routing=routes))
    assert rows(outcome) == [{"_id": "a", "tags": [], "s": {"a": None}, "__deleted": "false"}]
    assert (dead(outcome), outcome.needs) == ({}, ())


@pytest.mark.parametrize("routed", [True, False])
@pytest.mark.parametrize("evolve", [True, False])
def test_empty_values_under_other_letters_are_kept(*, routed: bool, evolve: bool) -> None:
    """Where the case of names does not count, an empty list is the column's, alone and beside rows that have values."""
    empties = {"id": 1, "kind": "a.t0", "TAGS": [], "S": {}, "Deep": [{}], "MORE": []}
    values = [empties, {"id": 2, "kind": "a.t0", "tags": [7], "s": {"a": 1}}, {"id": 3, "kind": "a.t0", "Tags": [8]}]
    made = (
        _plan(NESTED, case_insensitive=True, evolve=evolve)
        if routed
        else plan(append(0, NESTED), case_insensitive=True, evolve=evolve)
    )
    first = {"id": 1, "kind": "a.t0", "tags": [], "s": {"a": None}, "deep": [{"b": None}]}
    for some in (values, values[:1]):
        outcome = decode(run(*some), made)
        assert rows(outcome)[0] == first
        assert (dead(outcome), outcome.needs) == ({}, ())
    assert [row["tags"] for row in rows(decode(run(*values), made))] == [[], [7], [8]]
