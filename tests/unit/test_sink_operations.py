"""Operations of events that are no Debezium events: the words of Data Prepper's Iceberg sink, and cdc-field."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert

COLUMNS = {"id": pa.int64(), "v": pa.int64(), "op": pa.string()}


def _ops(field: str, *values: Any) -> Any:
    columns = {**COLUMNS, "__op": pa.string()}
    return decode(run(*values, keys=[{"id": 1}] * len(values)), plan(upsert(0, columns, ("id",)), op_field=field))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("index", "insert", "create", "c", "i", "INSERT", "Create", "I"), "c"),
        (("r", "R"), "r"),
        (("update", "u", "UPDATE", "U"), "u"),
        (("delete", "d", "Delete", "D"), "d"),
    ],
)
def test_words_of_operations(words: tuple[str, ...], code: str) -> None:
    """Rows "index, insert, create, c, i, r", "update, u" and "delete, d": each word in any case is its operation."""
    outcome = _ops("op", *({"id": 1, "v": 1, "op": word} for word in words))
    assert not outcome.faults
    codes = [chr(op) for part in outcome.parts for op in part.order.op]
    assert codes == [code] * len(words)
    assert [bool(gone) for part in outcome.parts for gone in part.deleted] == [code == "d"] * len(words)


@pytest.mark.parametrize("word", ["upsert", "", "x", "dd", " d", "t", "m", None])
def test_an_unknown_operation_is_a_dead_letter(word: str | None) -> None:
    """Row "Unrecognized": the record goes to the dead letters, its neighbours go on, and its word is in no message."""
    outcome = _ops("op", {"id": 1, "op": "c"}, {"id": 1, "v": 9, "op": word}, {"id": 1, "op": "d"})
    assert list(dead(outcome)) == [1]
    assert len(rows(outcome)) == 2
    assert "upsert" not in dead(outcome)[1]


def test_an_event_without_the_configured_field_is_a_dead_letter() -> None:
    """A configured field that no event has leaves no row to guess about."""
    assert list(dead(_ops("kind", {"id": 1}, {"id": 1}))) == [0, 1]


def test_debeziums_own_field_may_be_missing() -> None:
    """Without `__op` an event is an upsert; with a word in it that means nothing it is a dead letter."""
    outcome = _ops("__op", {"id": 1}, {"id": 1, "__op": None}, {"id": 1, "__op": "zz"}, {"id": 1, "__op": "delete"})
    assert list(dead(outcome)) == [2]
    assert [bool(gone) for part in outcome.parts for gone in part.deleted] == [False, False, True]


def test_a_nested_operation_field() -> None:
    """`iceberg.tables.cdc-field=_cdc.op` finds the field inside a struct (I, U, D of Iceberg's DebeziumTransform)."""
    outcome = _ops("_cdc.op", *({"id": 1, "_cdc": {"op": op}} for op in "IUD"))
    assert len(outcome.needs) == 1  # the struct is a new column
    columns = {**COLUMNS, "_cdc": pa.struct([("op", pa.string())])}
    values = [{"id": 1, "_cdc": {"op": op}} for op in "IUD"]
    made = decode(run(*values, keys=[{"id": 1}] * 3), plan(upsert(0, columns, ("id",)), op_field="_cdc.op"))
    assert [chr(op) for part in made.parts for op in part.order.op] == ["c", "u", "d"]


def test_an_envelope_tells_its_own_operation() -> None:
    """A configured field does not judge Debezium's envelopes: their `op` does."""
    envelope = {"before": None, "after": {"id": 1, "v": 2}, "source": {"ts_ms": 5, "table": "t"}, "op": "u"}
    outcome = _ops("kind", envelope)
    assert not outcome.faults
    assert len(outcome.parts) + len(outcome.needs) == 1


@pytest.mark.parametrize("field", ["__op", "kind"])
def test_a_cloud_event_tells_its_own_operation(field: str) -> None:
    """By an attribute, a truncate too; and it is no flattened event whose place in a log could have been added."""
    told = {"id": "1", "source": "/debezium/postgresql/p", "specversion": "1.0", "type": "DataChangeEvent"}
    told |= {"iodebeziumschema": "s", "iodebeziumtable": "t", "iodebeziumtsms": "5"}
    images = {"c": {"before": None, "after": {"id": 1}}, "d": {"before": {"id": 2}, "after": None}}
    images["t"] = {"before": None, "after": None}
    events = [{**told, "iodebeziumop": op, "data": data} for op, data in images.items()]
    table = upsert(0, {"id": pa.int64(), "__deleted": pa.string()}, ("id",))
    outcome = decode(run(*events, keys=[{"id": 1}, {"id": 2}, None]), plan(table, op_field=field))
    assert (dead(outcome), len(outcome.truncates), outcome.metrics.unplaced) == ({}, 1, frozenset())
    assert [row["id"] for row in rows(outcome)] == [1, 2]


def test_without_a_configured_field_all_are_inserts() -> None:
    """Row "operation: None (all INSERT)": a table that is appended to takes every event as it is."""
    outcome = decode(run({"v": 1, "op": "zz"}, {"v": 2, "op": "d"}), plan(append(0, COLUMNS)))
    assert [row["v"] for row in rows(outcome)] == [1, 2]
    before = decode(run({"v": 1, "__op": "zz"}), plan(upserts=False))
    assert (len(before.needs), before.faults) == (1, ())


@pytest.mark.parametrize("tombstones", ["delete", "skip"])
def test_a_delete_and_its_tombstone_are_one(tombstones: str) -> None:
    """A tombstone counts as a delete where it deletes, and stands behind no delete event; others repeat one."""
    create, delete = {"id": 1, "v": 1, "op": "c"}, {"id": 1, "v": 1, "op": "d"}
    values = [create, delete, None, create, None, delete, None, None]
    table = upsert(0, COLUMNS, ("id",), tombstones=tombstones)
    outcome = decode(run(*values, keys=[{"id": 1}] * len(values)), plan(table, op_field="op"))
    assert not outcome.faults
    metrics = outcome.metrics
    assert (metrics.operations["d"], metrics.tombstones) == (2, 4)
    assert metrics.lone_tombstones == (2 if tombstones == "delete" else 0)
