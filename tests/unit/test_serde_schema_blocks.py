"""Schema blocks of JSON messages, whatever stands in them -> rows, or dead letters of their own messages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from serde.formats import make_deserializer

_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


def _message(fields: list[dict[str, Any]], payload: bytes) -> bytes:
    schema = {"type": "struct", "fields": [{"optional": True, **field} for field in fields]}
    return b'{"schema":' + orjson.dumps(schema) + b',"payload":' + payload + b"}"


@pytest.mark.parametrize("default", [b"0.5", b"123456789012345678901234567890"])
def test_a_default_may_be_any_number(default: bytes) -> None:
    """Rows that are read one by one, as those with maps, may have decimals and a default that is no whole number."""
    map_type = {"type": "map", "field": "m", "keys": {"type": "string"}, "values": {"type": "string"}}
    fields = [{**_DECIMAL, "field": "d"}, {"type": "double", "field": "f", "default": "here"}, map_type]
    raw = _message(fields, b'{"d":"fQ==","f":1.5,"m":{"a":"b"}}').replace(b'"here"', default)
    spaced = raw.replace(b'"payload":', b'"payload": ').replace(b',"payload"', b', "payload"')
    found = make_deserializer("auto").decode(pa.array([raw, spaced]), "VALUE_CONVERTER")
    rows = [row for block in found.blocks for row in block.fields.to_pylist()]
    assert not found.faults and rows == [{"d": Decimal("1.25"), "f": 1.5, "m": [("a", "b")]}] * 2


@pytest.mark.parametrize(
    "field",
    [
        {**_DECIMAL, "parameters": ["2"]},
        {**_DECIMAL, "parameters": "2"},
        {"type": "string", "name": 5},
        {"type": "struct", "name": True, "fields": []},
        {"type": "array", "name": [1], "items": {"type": "string"}},
    ],
)
@pytest.mark.parametrize("text_columns", [frozenset[str](), frozenset({"*"})])
def test_a_block_that_is_no_schema_costs_its_own_message(field: dict[str, Any], text_columns: frozenset[str]) -> None:
    """What stands where a name or parameters belong makes a dead letter of the message, and stops nothing."""
    messages = [
        _message([{**field, "field": "x"}], b'{"x":null}'),
        _message([{**_DECIMAL, "field": "x"}], b'{"x":null}'),
    ]
    found = make_deserializer("auto").decode(pa.array(messages), "VALUE_CONVERTER", None, text_columns)
    assert [(fault.row, fault.reason) for fault in found.faults] == [(0, "schema block cannot be read: malformed")]
    assert [block.rows.tolist() for block in found.blocks] == [[1]]
