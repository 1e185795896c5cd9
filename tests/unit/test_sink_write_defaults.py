"""Columns that events lack, of a table that has defaults for writers (format 3) -> these in its rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from connector.sink.model.plan import TablePlan
from tests.unit.json_messages import framed
from tests.unit.sink_plans import append, dead, layout, plan, rows, run, upsert

pytestmark = pytest.mark.unit

COLUMNS = {"id": pa.int64(), "c": pa.string(), "n": pa.decimal128(9, 2)}


def _with_defaults(table: TablePlan, **defaults: Any) -> TablePlan:
    """The table as its owner has set defaults since."""
    schema = orjson.loads(table.layout.schema_json)
    for field in schema["fields"]:
        if field["name"] in defaults:
            field["write-default"] = defaults[field["name"]]
    return attrs.evolve(table, layout=attrs.evolve(table.layout, schema_json=orjson.dumps(schema).decode()))


def _event(**values: Any) -> bytes:
    """A flattened event that has these columns, by its schema too."""
    kinds = {"id": "int64", "c": "string", "n": "string"}
    return framed([{"type": kinds[name], "optional": True, "field": name} for name in values], values)


@pytest.mark.parametrize("evolve", [True, False])
@pytest.mark.parametrize("required", [(), ("c",)])
def test_a_column_that_events_lack_has_its_default(required: tuple[str, ...], *, evolve: bool) -> None:
    """Also one that is required, which stays so; a null that an event tells is a null."""
    table = _with_defaults(append(0, COLUMNS, required), c="new", n="1.50")
    outcome = decode(run(_event(id=1), _event(id=2, c="own", n=None)), plan(table, evolve=evolve))
    assert not outcome.needs and not dead(outcome)
    assert rows(outcome) == [{"id": 1, "c": "new", "n": Decimal("1.50")}, {"id": 2, "c": "own", "n": None}]


def test_without_a_default_a_required_column_is_asked_for() -> None:
    """It becomes optional, as before."""
    (need,) = decode(run(_event(id=1)), plan(append(0, COLUMNS, ("c",)))).needs
    assert need.relaxed == {("c",)}


def test_a_key_has_no_default() -> None:
    """All rows would be one."""
    table = attrs.evolve(_with_defaults(upsert(0, COLUMNS, ("id",)), id=7, c="new"), keys_from="value")
    outcome = decode(run(_event(c="x")), plan(table))
    assert "id is a key" in dead(outcome)[0]


def test_events_without_schema_have_nulls() -> None:
    """An event that lacks a field cannot be told from one where it is null, beside others that have it."""
    table = _with_defaults(append(0, COLUMNS), c="new")
    assert rows(decode(run({"id": 1}), plan(table))) == [{"id": 1, "c": None, "n": None}]


def test_deletes_have_no_row_to_fill() -> None:
    """Of a deleted row only the key is known."""
    table = _with_defaults(upsert(0, COLUMNS, ("id",)), c="new")
    outcome = decode(run(None, _event(id=2), keys=[{"id": 1}, {"id": 2}]), plan(table))
    assert [row["c"] for row in rows(outcome)] == [None, "new"]


@pytest.mark.parametrize("required", [(), ("c",)])
def test_an_update_of_some_columns_says_nothing_of_others(required: tuple[str, ...]) -> None:
    """It leaves them as they are; an insert has defaults also where such an update is beside it."""
    columns = {"id": pa.int64(), "n": pa.int64(), "c": pa.string(), "__deleted": pa.string()}
    image = [{"type": "int64", "optional": name != "id", "field": name} for name in ("id", "n")]
    told = {"type": "string", "optional": True, "field": "value_capture_type"}
    fields: list[Any] = [
        *({"type": "struct", "fields": image, "optional": True, "field": name} for name in ("before", "after")),
        {"type": "struct", "fields": [told], "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
    ]

    def event(op: str, **after: Any) -> bytes:
        source = {"value_capture_type": "NEW_VALUES"}
        return framed(fields, {"before": None, "after": {"n": None, **after}, "source": source, "op": op})

    made = TablePlan(0, layout(columns, ("id",), required), upsert=True, keep_deletes=False)
    table = _with_defaults(attrs.evolve(made, takes_patches=True, patches=True), c="new")
    outcome = decode(run(event("c", id=1, n=1), event("u", id=2), keys=[{"id": 1}, {"id": 2}]), plan(table))
    assert not outcome.needs and not dead(outcome)
    assert [(row["id"], row["c"]) for row in rows(outcome)] == [(1, "new"), (2, None)]
    (part,) = outcome.parts
    assert part.patches is not None and part.patches.is_valid().to_pylist() == [False, True]
