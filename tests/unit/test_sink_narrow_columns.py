"""Numbers of events without schema in narrow columns -> columns stay as they are until a value needs more room."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from tests.unit.sink_plans import append, plan, rows, run

SMALL, REAL = pa.int32(), pa.float32()
STRUCT = pa.struct([("x", SMALL), ("y", REAL), ("z", pa.string())])
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (SMALL, 5),
    "float": (REAL, 0.5),
    "list of ints": (pa.list_(SMALL), [1, None, 2]),
    "list of floats": (pa.list_(REAL), [0.5, 2.0]),
    "struct": (STRUCT, {"x": 1, "y": 0.5, "z": "a"}),
    "list of structs": (pa.list_(STRUCT), [{"x": 1, "y": 0.5, "z": "a"}, {"x": None, "y": None, "z": None}]),
    "struct of a list": (pa.struct([("l", pa.list_(SMALL))]), {"l": [1]}),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_column_is_not_widened_before_a_value_needs_it(name: str) -> None:
    """JSON knows no widths, and no table gets its narrow columns back."""
    kind, value = KINDS[name]
    outcome = decode(run({"v": value}, {"v": None}), plan(append(0, {"v": kind})))
    assert (outcome.needs, rows(outcome)) == ((), [{"v": value}, {"v": None}])


def test_a_value_that_needs_room_widens_its_column_alone() -> None:
    """Also where it stands in a list, or in a struct with others."""
    table = append(0, {"s": STRUCT, "l": pa.list_(SMALL)})
    (need,) = decode(run({"s": {"x": 2**40, "y": 0.5}, "l": [1]}), plan(table)).needs
    kinds = {"s": pa.struct([("x", pa.int64()), ("y", REAL)]), "l": pa.list_(SMALL)}
    assert {field.name: field.type for field in need.row} == kinds
    (need,) = decode(run({"l": [1, 2**40]}), plan(table)).needs
    assert need.row.field("l").type == pa.list_(pa.int64())
