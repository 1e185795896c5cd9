"""Columns that are left out by option (`excluded-columns`) -> none of their values, also in tables that have them."""

from __future__ import annotations

from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from serde.events.changes import DELETED_COLUMN
from tests.unit import test_sink_outbox as outbox
from tests.unit.json_messages import framed
from tests.unit.sink_plans import append, dead, layout, plan, rows, run, upsert

FIELDS = [{"type": "int64", "field": "id"}, {"type": "string", "optional": True, "field": "pw"}]
COLUMNS = {"id": pa.int64(), "pw": pa.string(), DELETED_COLUMN: pa.string()}
OUT: dict[str, Any] = {"excluded_columns": frozenset({"pw"})}


@pytest.mark.parametrize("schema", [True, False], ids=["schema", "bare"])
@pytest.mark.parametrize("evolve", [True, False], ids=["evolve", "fixed"])
@pytest.mark.parametrize("keyed", [True, False], ids=["upsert", "append"])
def test_a_table_that_has_the_column_gets_null(schema: bool, evolve: bool, keyed: bool) -> None:
    """As the page "Leave out, mask and add columns" says: it keeps the column, with null in new rows."""
    row = {"id": 1, "pw": "secret"}
    event = framed(FIELDS, row) if schema else row
    table = upsert(0, COLUMNS, ("id",)) if keyed else append(0, COLUMNS)
    outcome = decode(run(event, keys=[{"id": 1}]), plan(table, evolve=evolve, **OUT))
    assert (rows(outcome), dead(outcome), outcome.needs) == ([{"id": 1, "pw": None, DELETED_COLUMN: None}], {}, ())


def test_a_required_column_becomes_optional() -> None:
    """As one that the source has dropped; without schema nothing allows that, and its events are dead letters."""
    table = append(0, COLUMNS, required=["pw"])
    event = framed(FIELDS, {"id": 1, "pw": "secret"})
    (need,) = decode(run(event), plan(table, **OUT)).needs
    assert (need.relaxed, "pw" in need.row.names) == (frozenset({("pw",)}), False)
    assert list(dead(decode(run({"id": 1, "pw": "secret"}), plan(table, **OUT)))) == [0]


def test_a_column_of_the_key_stays() -> None:
    """Rows are told apart by it, whether it comes from the record's key or from the value."""
    table = attrs.evolve(upsert(0, COLUMNS, ("pw",)), keys_from="value")
    assert [row["pw"] for row in rows(decode(run({"id": 1, "pw": "k"}), plan(table, **OUT)))] == ["k"]
    table = upsert(0, COLUMNS, ("id", "pw"))
    outcome = decode(run({"id": 1, "pw": "k"}, keys=[{"id": 1, "pw": "k"}]), plan(table, **OUT))
    assert [row["pw"] for row in rows(outcome)] == ["k"] and layout(COLUMNS, ("pw",)).keys == ("pw",)


@pytest.mark.parametrize("variants", [False, True])
def test_outbox_events_leave_them_out_too(variants: bool) -> None:
    """The names hold for every table, those of outbox events among them."""
    event = outbox.run(orjson.dumps({"payload": "{}", "secret": "s", "size": 1}))
    settings: dict[str, Any] = {"excluded_columns": frozenset({"secret", "payload"}), "variants": variants}
    (need,) = decode(event, outbox.plan(**settings)).needs
    assert need.row.names == ["id", "aggregatetype", "aggregateid", "type", "size"]
    made = decode(event, outbox.plan(outbox.table(secret=pa.string(), size=pa.int64()), **settings))
    assert [(row["secret"], row["payload"], row["size"]) for row in rows(made)] == [(None, None, 1)]
