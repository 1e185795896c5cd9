"""Avro messages whose schema is a union of records, or has one where a row is expected -> rows of each, or faults."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from serde.formats import make_deserializer
from tests.model import avro


def _several(*names: str, null: bool = False) -> list[Any]:
    """A union of records, each with an id and a column of its own."""
    kinds = [
        {
            "type": "record",
            "name": "Value",
            "namespace": name,
            "fields": [{"name": "id", "type": "long"}, {"name": name, "type": ["null", "string"]}],
        }
        for name in names
    ]
    return ["null", *kinds] if null else kinds


def test_messages_of_several_records_are_blocks_of_each() -> None:
    """A subject may be a union of records, for a topic of several tables: each message is what it was written as."""
    schema = [*_several("a", "b", null=True), "string"]
    values = [
        ("a.Value", {"id": 1, "a": "x"}),
        ("b.Value", {"id": 2, "b": None}),
        None,
        "text",
        ("a.Value", {"id": 3, "a": None}),
    ]
    raw = pa.array([avro.framed(avro.written(schema, value)) for value in values], pa.binary())
    found = make_deserializer("avro", None, avro.fetch(schema)).decode(raw, "VALUE_CONVERTER")
    assert [(b.rows.tolist(), b.name, b.fields.to_pylist()) for b in found.blocks] == [
        ([0, 4], "a.Value", [{"id": 1, "a": "x"}, {"id": 3, "a": None}]),
        ([1], "b.Value", [{"id": 2, "b": None}]),
    ]
    assert [dict(block.optional) for block in found.blocks] == [{"id": False, "a": True}, {"id": False, "b": True}]
    assert found.tombstones.tolist() == [2]
    assert [(fault.row, fault.reason) for fault in found.faults] == [(3, "string of a union is no record")]


def test_images_of_several_records_are_faults_of_one_reason() -> None:
    """An envelope tells of one table: rows of several in one column would be columns named by their types."""
    images = [{"name": "before", "type": _several("a", "b", null=True)}]
    images.append({"name": "after", "type": ["null", "a.Value", "b.Value"]})
    source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
    fields = [*images, {"name": "source", "type": source}, {"name": "op", "type": "string"}]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    event = {"before": None, "after": ("a.Value", {"id": 1, "a": None}), "source": {"ts_ms": 1}, "op": "c"}
    raw = pa.array([avro.framed(avro.written(schema, event))] * 2, pa.binary())
    found = make_deserializer("avro", None, avro.fetch(schema)).decode(raw, "VALUE_CONVERTER")
    assert not found.blocks and len({fault.reason for fault in found.faults}) == 1
    assert [fault.row for fault in found.faults] == [0, 1] and "several record types" in found.faults[0].reason


_COLOR = {"type": "enum", "name": "Color", "namespace": "shop", "symbols": ["RED"]}
_PAIR = {"type": "fixed", "name": "Pair", "namespace": "shop", "size": 2}


@pytest.mark.parametrize(
    ("branches", "value", "column"),
    [
        (["null", "string", _COLOR], ("shop.Color", "RED"), {"string": None, "Color": "RED"}),
        (["string", _COLOR], "RED", {"string": "RED", "Color": None}),
        (["int", _COLOR], ("shop.Color", "RED"), {"int": None, "Color": "RED"}),
        (["bytes", _PAIR, "null"], ("shop.Pair", b"ab"), {"bytes": None, "Pair": b"ab"}),
        ([_COLOR, {**_COLOR, "namespace": "car"}], ("car.Color", "RED"), {"shop.Color": None, "car.Color": "RED"}),
    ],
)
def test_enums_and_fixed_types_of_a_union_are_columns_of_their_names(
    branches: list[Any], value: Any, column: dict[str, Any]
) -> None:
    """A union may have texts and enums, bytes and fixed types: each has a column of its own, as Connect calls it."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": branches}]}
    raw = pa.array([avro.framed(avro.written(schema, {"u": value}))])
    found = make_deserializer("avro", None, avro.fetch(schema)).decode(raw, "VALUE_CONVERTER")
    assert not found.faults and found.blocks[0].fields.to_pylist() == [{"u": column}]


@pytest.mark.parametrize("nothing", ["null", ["null"]])
def test_a_field_that_is_only_null_is_no_column(nothing: object) -> None:
    """As a type or as a union of one: it says nothing, and the others are read."""
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "n", "type": nothing}, {"name": "k", "type": "int"}],
    }
    fields = [{"name": "id", "type": "long"}, {"name": "x", "type": nothing}, {"name": "s", "type": inner}]
    schema = {"type": "record", "name": "Value", "fields": [*fields, {"name": "y", "type": "string"}]}
    rows = [{"id": number, "x": None, "s": {"n": None, "k": 7}, "y": "a"} for number in (1, 2)]
    raw = pa.array([avro.framed(avro.written(schema, row)) for row in rows], pa.binary())
    for one in (raw, raw.slice(0, 1)):
        found = make_deserializer("avro", None, avro.fetch(schema)).decode(one, "VALUE_CONVERTER")
        assert not found.faults
        told = [{"id": row["id"], "s": {"k": 7}, "y": "a"} for row in rows[: len(one)]]
        assert [block.fields.to_pylist() for block in found.blocks] == [told]
