"""Columns with the name of a field within another one -> dead letters for their values, a table of the rest."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.schemas.schema_evolution import evolve, union_shapes
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import TablePlan
from tests.unit.sink_plans import append, dead, plan, rows, run

PAIRS: dict[str, tuple[dict[str, Any], str]] = {
    "column, then struct": ({"a.b": 1, "a": {"b": 2}}, "a"),
    "struct, then column": ({"a": {"b": 2}, "a.b": 1}, "a.b"),
    "deeper": ({"a": {"b": {"c": 2}}, "a.b.c": 1}, "a.b.c"),
    "a field with a dot": ({"a": {"b.c": 2}, "a.b.c": 1}, "a.b.c"),
    "within one column": ({"id": 1, "a": {"b.c": 2, "b": {"c": 1}}}, "a"),
    "items of a list": ({"a": [{"b": 2}], "a.element.b": 1}, "a.element.b"),
    "a list itself": ({"a": [2], "a.element": 1}, "a.element"),
    "structs": ({"a": {"b": {"c": 2}}, "a.b": {"c": 1}}, "a.b"),
}


def _events(*values: Any, table: TablePlan | None = None, **changed: Any) -> DecodedRecords:
    tables = () if table is None else (table,)
    return decode(run(*values), plan(*tables, **changed))


@pytest.mark.parametrize("name", PAIRS)
def test_a_new_table_has_the_first(name: str) -> None:
    """The value of the second is a dead letter; events without it make a table."""
    value, lost = PAIRS[name]
    other = {"id": 5, **{key: one for key, one in value.items() if key != lost}}
    outcome = _events(value, other)
    assert dead(outcome).keys() == {0}
    assert repr(lost) in dead(outcome)[0]
    (need,) = outcome.needs
    assert lost not in need.row.names
    build_table_schema(pa.schema(list(need.row)), (), frozenset(), nanoseconds=False)


@pytest.mark.parametrize(
    ("columns", "value"),
    [
        ({"a.b": pa.int64()}, {"a": {"b": 2}}),
        ({"a": pa.struct([("b", pa.int64())])}, {"a.b": 2}),
        ({"a.b": pa.int64(), "a": pa.struct([("c", pa.int64())])}, {"a": {"b": 2, "c": 3}}),
        ({"a": pa.list_(pa.int64())}, {"a.element": 2}),
    ],
)
def test_a_column_of_the_table_stays(columns: dict[str, pa.DataType], value: dict[str, Any]) -> None:
    """What would need a column beside it is a dead letter, its nulls are none."""
    table = append(0, {"id": pa.int64(), **columns})
    outcome = _events({"id": 1, **value}, {"id": 2, **dict.fromkeys(value)}, table=table)
    assert dead(outcome).keys() == {0}
    assert not outcome.needs
    assert [row["id"] for row in rows(outcome)] == [2]


def test_names_with_dots_are_names() -> None:
    """A dot alone makes nothing ambiguous; a column that is left out by option neither."""
    outcome = _events({"id": 1, "a.b": 1, "a.c": {"d": 2}, "a": {"x.y": 3}})
    assert not outcome.faults
    assert len(outcome.needs) == 1
    assert not _events({"a.b": 1, "a": {"b": 2}}, excluded_columns=frozenset({"a"})).faults


def test_events_of_several_blocks() -> None:
    """Each alone makes nothing ambiguous: the first shape's columns are made, and a table's own stay as they are."""
    first, second = (
        pa.struct([("a.b", pa.int64())]),
        pa.struct([("a", pa.struct([("b", pa.int64())])), ("c", pa.int64())]),
    )
    assert union_shapes([first, second]).names == ["a.b", "c"]
    assert union_shapes([second, first]).names == ["a", "c"]
    table = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("x", pa.int64())]))])
    grown = evolve(table, second, add=True)
    assert grown.equals(table.append(pa.field("c", pa.int64())))
