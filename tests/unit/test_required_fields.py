"""Null structs with required fields -> Parquet files that hold them, whatever the fields' types and however deep."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.iceberg.types.values.conversion import convert
from connector.iceberg.write.formats.required_fields import fill_below_nulls, has_required_fields
from tests.model.key_types import KEY_TYPES


def _needed(kind: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field("x", kind, nullable=False), pa.field("y", pa.int64())])


TYPES: dict[str, pa.DataType] = {
    **{kind.name: kind.arrow for kind in KEY_TYPES if kind.name != "uuid"},
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": _needed(pa.string()),
    "struct of structs": _needed(_needed(pa.decimal128(9, 2))),
}
VALUES: dict[str, Any] = {
    "list": [1],
    "map": [("a", 1)],
    "struct": {"x": "a", "y": None},
    "struct of structs": {"x": {"x": Decimal("1.25"), "y": 2}, "y": None},
}


def _loosen(kind: pa.DataType) -> pa.DataType:
    """The type of events: nothing is required."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _loosen(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_loosen(kind.value_type))
    return pa.map_(kind.key_type, _loosen(kind.item_type)) if pa.types.is_map(kind) else kind


def _written(column: pa.ChunkedArray, field: pa.Field) -> list[Any]:
    stream = io.BytesIO()
    pq.write_table(pa.table([column], schema=pa.schema([field])), stream)
    found: list[Any] = pq.read_table(stream).column(0).to_pylist()
    return found


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("around", ["struct", "list", "map"])
def test_null_structs_with_required_fields_are_written(name: str, around: str) -> None:
    """They are null in the file, beside structs that are there, in slices and without any that is there too."""
    kind = _needed(TYPES[name])
    (value,) = pa.array([VALUES[name]], TYPES[name]).to_pylist() if name in VALUES else KEY_TYPES_VALUES[name]
    there = {"x": value, "y": 3}
    whole = {"struct": kind, "list": pa.list_(kind), "map": pa.map_(pa.string(), kind)}[around]
    wrap = {"struct": lambda v: v, "list": lambda v: [v, there], "map": lambda v: [("k", v), ("l", there)]}[around]
    field = pa.field("s", whole)
    for rows in ([None, there, None, there], [None, None], [there]):
        given = [wrap(row) for row in rows] + [None]
        array, _ = convert(pa.array(given, _loosen(whole)), whole)
        assert _written(fill_below_nulls(pa.chunked_array([array, array[1:]])), field) == [*given, *given[1:]]


KEY_TYPES_VALUES = {kind.name: kind.array(kind.extreme[:1]).to_pylist() for kind in KEY_TYPES}


def test_a_struct_that_is_there_has_its_required_fields() -> None:
    """A null in a struct that is there is no value that is made up: it is refused as ever."""
    kind = _needed(pa.string())
    lacking = pa.StructArray.from_arrays([pa.array(["a", None]), pa.array([1, 2])], fields=list(kind))
    with pytest.raises(pa.ArrowInvalid):
        _written(fill_below_nulls(pa.chunked_array([lacking])), pa.field("s", kind))


def test_types_without_required_fields_are_left_alone() -> None:
    """Only fields within structs count."""
    assert not has_required_fields(
        pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    )
    assert has_required_fields(pa.list_(_needed(pa.int64())))
