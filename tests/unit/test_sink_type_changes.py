"""A source column gets another type -> dead letters, a stop, or a column beside the old one, by option."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from connector.errors import FatalError
from connector.iceberg.types.schemas.schema_evolution import union_shapes
from connector.settings import EventSettings
from connector.sink.convert.columns.type_changes import holds_all, name_column
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import BatchPlan
from tests.unit import sink_plans
from tests.unit.json_messages import framed

ID = {"type": "int64", "optional": False, "field": "id"}


def event(kind: str, value: Any, **schema: Any) -> bytes:
    return framed([ID, {"type": kind, "optional": True, "field": "shape", **schema}], {"id": 1, "shape": value})


def plan(mode: Any, **columns: pa.DataType) -> BatchPlan:
    table = sink_plans.append(0, {"id": pa.int64(), **columns})
    return sink_plans.plan(table, events=EventSettings("auto", "auto", (), "__", type_changes=mode))


# Debezium 3.7 sends PostgreSQL's geometric types as text, which were bytes before.
WAS, NOW = event("bytes", base64.b64encode(b"(1,2)").decode()), event("string", "(1,2)")


def test_a_new_column_stands_beside_the_old() -> None:
    """The new type's values go to shape__string, old events still to shape; nothing is lost, nothing stands still."""
    (need,) = decode(sink_plans.run(NOW), plan("new-column", shape=pa.binary())).needs
    columns = union_shapes([pa.struct([("id", pa.int64()), ("shape", pa.binary())]), need.row])
    assert columns.field("shape__string").type == pa.string()
    made = plan("new-column", shape=pa.binary(), shape__string=pa.string())
    outcome = decode(sink_plans.run(WAS, NOW), made)
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    assert sink_plans.rows(outcome) == [
        {"id": 1, "shape": b"(1,2)", "shape__string": None},
        {"id": 1, "shape": None, "shape__string": "(1,2)"},
    ]


def test_by_default_what_does_not_fit_is_a_dead_letter() -> None:
    """The others go on; the reason names the option that helps, where one does."""
    outcome = decode(sink_plans.run(WAS, NOW), plan("dead-letter", shape=pa.binary()))
    misfit = "column shape: a value of type {} does not fit the table's {}"
    remedy = "; debezium.sink.iceberg.type-changes=new-column gives values of that type a column of their own"
    assert sink_plans.dead(outcome) == {1: misfit.format("string", "binary") + remedy}
    assert len(sink_plans.rows(outcome)) == 1
    other = decode(sink_plans.run(b'{"id":1,"shape":"x"}'), plan("dead-letter", shape=pa.int64()))
    assert "new-column" not in "".join(sink_plans.dead(other).values())


def test_it_may_stop() -> None:
    """The error names table, column and both types, and what to do."""
    with pytest.raises(FatalError, match=r"table d\.t.*shape \(binary, now string\).*type-changes"):
        decode(sink_plans.run(NOW), plan("stop", shape=pa.binary()))
    assert sink_plans.rows(decode(sink_plans.run(WAS), plan("stop", shape=pa.binary())))


def test_a_type_that_grows_is_no_change() -> None:
    """Where Iceberg lets a column grow it grows, as without the option."""
    (need,) = decode(sink_plans.run(event("int64", 2**40)), plan("new-column", shape=pa.int32())).needs
    assert need.row.field("shape").type == pa.int64()


@pytest.mark.parametrize(
    ("column", "same", "other"),
    [
        (pa.int32(), [pa.int32(), pa.int64()], [pa.string(), pa.float64(), pa.decimal128(9, 2), pa.bool_()]),
        (pa.int64(), [pa.int32()], [pa.float32(), pa.timestamp("us")]),
        (pa.float64(), [pa.int32(), pa.float32()], [pa.int64(), pa.string()]),
        (pa.decimal128(6, 2), [pa.decimal128(5, 2), pa.decimal128(12, 2), pa.decimal128(6, 1)], [pa.decimal128(12, 4)]),
        (pa.string(), [pa.int64(), pa.date32(), pa.decimal128(9, 2), pa.uuid()], [pa.binary(), pa.list_(pa.int32())]),
        (pa.date32(), [], [pa.timestamp("us"), pa.string()]),
        (pa.timestamp("us"), [pa.date32()], [pa.timestamp("us", "UTC"), pa.int64()]),
        (pa.list_(pa.int32()), [pa.list_(pa.int64())], [pa.struct([("a", pa.int32())]), pa.int32()]),
        (pa.list_(pa.int32()), [pa.list_(pa.int32())], [pa.list_(pa.string()), pa.list_(pa.list_(pa.int32()))]),
        (pa.list_(pa.decimal128(6, 2)), [pa.list_(pa.decimal128(9, 2))], [pa.list_(pa.decimal128(12, 4))]),
        (
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            [pa.struct([("a", pa.int64())]), pa.struct([("c", pa.int32())])],
            [pa.struct([("a", pa.string())])],
        ),
        (pa.map_(pa.string(), pa.int32()), [pa.map_(pa.string(), pa.int64())], [pa.map_(pa.string(), pa.string())]),
    ],
)
def test_which_types_are_another(column: pa.DataType, same: list[pa.DataType], other: list[pa.DataType]) -> None:
    """Another type is one that has a value which the column has not, now or grown."""
    assert all(holds_all(column, kind) for kind in same)
    assert not any(holds_all(column, kind) for kind in other)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.decimal128(12, 4), "a__decimal_12_4"),
        (pa.timestamp("us", "UTC"), "a__timestamptz"),
        (pa.list_(pa.int32()), "a__list"),
        (pa.struct([("x", pa.int32())]), "a__struct"),
        (pa.int64(), "a__long"),
    ],
)
def test_names_are_predictable(kind: pa.DataType, name: str) -> None:
    """Column and Iceberg type, two underscores between."""
    assert name_column("a", kind) == name
